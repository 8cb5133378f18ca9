#include <ccl/ccl.hpp>
#include <ccl/checked.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 4;
const double not_a_number = std::numeric_limits<double>::quiet_NaN();

Config cpu() {
  Config config;
  config.device = Config::cpu;
  config.timeout_s = 60;
  return config;
}
/// Runs `body` on each rank. Returns the errors' messages; empty: success.
std::vector<Result<void>> run(const RankBody& body) {
  return on_ranks(ranks, cpu(), body);
}
/// The message of every rank contains `text`, with this code and peer.
void check_all(const std::vector<Result<void>>& results, Errc code, int peer,
               const std::string& text) {
  for (const auto& result : results) {
    REQUIRE(!result.has_value());
    INFO(result.error().message());
    CHECK(result.error().code == code);
    CHECK(result.error().peer == peer);
    CHECK(result.error().what.find(text) != std::string::npos);
  }
}

template <class C>
using Both = Checked<C>;

/// An all-reduce, a reduce and an all-gather go well, with several rounds of the wires.
template <class Algo, class Proto, class Transport>
Result<void> runs_well(const Communicator& comm) {
  CCL_TRY(const auto sums, (Collective<AllReduce, Both<Algo>, Proto, Transport>::create(comm)));
  CCL_TRY(const auto to_root, (Collective<Reduce, Both<Algo>, Proto, Transport>::create(comm)));
  CCL_TRY(const auto copies, (Collective<Broadcast, Both<Algo>, Proto, Transport>::create(comm)));
  for (const Index n : {Index{0}, Index{1}, Index{1001}, Index{300'000}}) {
    const auto size = std::size_t(n);
    std::vector<float> in(size, float(comm.rank() + 1)), out(size);
    const auto good = [&](float value) {
      for (const float x : out) {
        if (x != value) return false;
      }
      return true;
    };
    CCL_CHECK(sums(in.data(), out.data(), n));
    if (!good(10)) return fail(Errc::internal, "wrong sum");
    CCL_CHECK(to_root(in.data(), out.data(), n, Max{}, 1));
    if (comm.rank() == 1 && !good(4)) return fail(Errc::internal, "wrong maximum");
    CCL_CHECK(copies(in.data(), out.data(), n, 2));
    if (!good(3)) return fail(Errc::internal, "wrong copy");
    CCL_CHECK(sums(in.data(), in.data(), n));  // in place
  }
  return {};
}

}  // namespace

TEST_CASE("checked compositions have a name of their own and run like others") {
  check_well(run([](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto one, (Collective<AllReduce, Checked<Ring>, LL>::create(comm)));
    if (one.name() != "all_reduce/Checked<Ring>/LL/any") return fail(Errc::internal, one.name());
    CCL_CHECK((runs_well<Ring, LL, DefaultTransport>(comm)));
    CCL_CHECK((runs_well<Ring, Simple, DefaultTransport>(comm)));
    CCL_CHECK((runs_well<Tree, LL128, DefaultTransport>(comm)));
    CCL_CHECK((runs_well<Tree, Simple, DefaultTransport>(comm)));
    CCL_TRY(const auto nans, (Collective<AllReduce, Checked<Ring, NanCheck>, LL>::create(comm)));
    CCL_TRY(const auto calls, (Collective<AllReduce, Checked<Ring, CallCheck>, LL>::create(comm)));
    if (nans.name() != "all_reduce/NanChecked<Ring>/LL/any")
      return fail(Errc::internal, nans.name());
    if (calls.name() != "all_reduce/CallChecked<Ring>/LL/any") {
      return fail(Errc::internal, calls.name());
    }
    return runs_well<Ring, Simple, SocketTransport>(comm);
  }));
}

TEMPLATE_TEST_CASE("the first NaN fails all ranks, with its rank and place", "", Simple, LL,
                   LL128) {
  for (const bool in_place : {false, true}) {
    std::vector<std::vector<float>> in(ranks, std::vector<float>(5000, 1)), out = in;
    const auto results = run([&](const Communicator& comm) -> Result<void> {
      CCL_TRY(const auto sums, (Collective<AllReduce, Checked<Ring>, TestType>::create(comm)));
      auto &from = in[std::size_t(comm.rank())], &to = out[std::size_t(comm.rank())];
      if (comm.rank() == 2) from[4321] = from[1234] = float(not_a_number);
      CCL_CHECK(sums(from.data(), in_place ? from.data() : to.data(), 5000));
      return {};
    });
    // In place, it is the first of a part: results replace what lies before.
    const bool second = in_place && mentions(results[0].error().message(), "element 4321 ");
    check_all(
        results, Errc::not_a_number, 2,
        fmt::format("element {} of the input of rank 2 is NaN (float, found before it was sent)",
                    second ? 4321 : 1234));
    for (std::size_t r = 0; r < in.size(); ++r) {  // it has not spread
      for (const float x : out[r]) REQUIRE(!std::isnan(x));
      for (const float x : in[r]) REQUIRE((r == 2 || !std::isnan(x)));
    }
  }
}

TEMPLATE_TEST_CASE("a NaN does not spread in algorithms of several steps", "", Doubling, Tree) {
  for (const int size : {3, 8}) {
    for (int at = 0; at < size; at += size == 3 ? 1 : 5) {
      std::vector<std::vector<float>> data(std::size_t(size), std::vector<float>(100, 1));
      const auto results = on_ranks(size, cpu(), [&](const Communicator& comm) -> Result<void> {
        CCL_TRY(const auto sums, (Collective<AllReduce, Checked<TestType>, Simple>::create(comm)));
        auto& mine = data[std::size_t(comm.rank())];
        if (comm.rank() == at) mine[57] = float(not_a_number);
        CCL_CHECK(sums(mine.data(), mine.data(), 100));
        return comm.barrier();
      });
      check_all(results, Errc::not_a_number, at,
                fmt::format("element 57 of the input of rank {} is NaN", at));
      for (int r = 0; r < size; ++r) {
        for (const float x : data[std::size_t(r)]) REQUIRE((r == at || !std::isnan(x)));
      }
    }
  }
}

TEST_CASE("a NaN in the input of a reduce-scatter has its place in the whole input") {
  const auto results = run([](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, (Collective<ReduceScatter, Checked<Ring>, LL>::create(comm)));
    std::vector<float> in(400, 1), out(100);
    if (comm.rank() == 1) in[399] = float(not_a_number);
    CCL_CHECK(sums(in.data(), out.data(), 100));
    return comm.barrier();
  });
  check_all(results, Errc::not_a_number, 1, "element 399 of the input of rank 1 is NaN");
}

TEST_CASE("ranks that compose other checks are refused when they create") {
  const auto results = run([](const Communicator& comm) -> Result<void> {
    using Both = Collective<AllReduce, Checked<Ring>, LL>;
    using Nans = Collective<AllReduce, Checked<Ring, NanCheck>, LL>;
    if (comm.rank() == 1) return Nans::create(comm) ? Result<void>{} : comm.status();
    return Both::create(comm) ? Result<void>{} : comm.status();
  });
  for (const auto& result : results) {
    REQUIRE(!result.has_value());
    CHECK(result.error().code == Errc::mismatch);
    CHECK(mentions(result.error().what, "NanChecked<Ring>"));
  }
}

TEST_CASE("roots that change are no error, with wires that depend on the root") {
  check_well(run([](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto copies, (Collective<Broadcast, Checked<Tree>, LL>::create(comm)));
    for (int call = 0; call < 3 * ranks; ++call) {
      const int root = call % ranks;
      int value = comm.rank();
      CCL_CHECK(copies(&value, &value, 1, root));
      if (value != root) return fail(Errc::internal, "wrong value");
    }
    return {};
  }));
}

TEMPLATE_TEST_CASE("NaN of each type of floating point is found, in a tree, too", "", double,
                   float16, bfloat16, float8_e4m3, float8_e5m2) {
  const auto results = run([&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, (Collective<Reduce, Checked<Tree, NanCheck>, Simple>::create(comm)));
    std::vector<TestType> in(100, TestType(1.f)), out(100);
    CCL_CHECK(sums(in.data(), out.data(), 100, Sum{}, 1));
    if (comm.rank() == 3) in[99] = TestType(float(not_a_number));
    CCL_CHECK(sums(in.data(), out.data(), 100, Sum{}, 1));
    return comm.barrier();  // of a rank that had done its part
  });
  check_all(results, Errc::not_a_number, 3, "element 99 of the input of rank 3");
}

TEST_CASE("a NaN in what is only moved, or without NanCheck, is no error") {
  check_well(run([](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto gathers, (Collective<AllGather, Checked<Ring>, LL>::create(comm)));
    CCL_TRY(const auto sums, (Collective<AllReduce, Checked<Ring, CallCheck>, LL>::create(comm)));
    const double in[2] = {not_a_number, 1};
    double all[2 * ranks] = {};
    CCL_CHECK(gathers(in, all, 2));
    CCL_CHECK(sums(in, all, 2));
    return std::isnan(all[0]) && all[1] == ranks ? Result<void>{} : fail(Errc::internal, "data");
  }));
}

namespace {
/// All ranks fail with a text that has both calls, and name rank 1 or its neighbors.
template <class C, class Call>
void check_mismatch(const std::string& of_rank_1, const std::string& of_others, Call call) {
  const auto results = run([&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto composed, C::create(comm));
    CCL_CHECK(call(comm.rank(), composed));
    return comm.barrier();  // of a rank that had done its part
  });
  for (const auto& result : results) {
    REQUIRE(!result.has_value());
    INFO(result.error().message());
    CHECK(result.error().code == Errc::mismatch);
    const std::string& what = result.error().what;
    const bool found_by_other = what.find("rank 1 calls with " + of_rank_1) != std::string::npos &&
                                what.find(" calls with " + of_others) != std::string::npos;
    const bool found_by_1 =
        what.find("rank 1 calls with " + of_rank_1 + " (") != std::string::npos &&
        what.find(" calls with " + of_others + " where") != std::string::npos;
    CHECK((found_by_other || found_by_1));
  }
}
std::vector<double> doubles(1000, 1);
}  // namespace

TEMPLATE_TEST_CASE("a call with another count or order fails all ranks, with both calls", "",
                   Simple, LL, LL128) {
  using Sums = Collective<AllReduce, Checked<Ring, CallCheck>, TestType>;
  check_mismatch<Sums>("300 double, sum", "100 double, sum",
                       [](int rank, const Sums& sums) -> Result<void> {
                         std::vector<double> out(1000);
                         const Index n = rank == 1 ? 300 : 100;
                         CCL_CHECK(sums(doubles.data(), out.data(), 200));
                         return sums(doubles.data(), out.data(), n);
                       });
  check_mismatch<Sums>("20 double, sum", "10 double, sum",
                       [](int rank, const Sums& sums) -> Result<void> {  // in another order
                         std::vector<double> out(1000);
                         const Index n = rank == 1 ? 20 : 10;
                         CCL_CHECK(sums(doubles.data(), out.data(), n));
                         return sums(doubles.data(), out.data(), 30 - n);
                       });
}

TEST_CASE("a call with another type, reduction or root fails all ranks, with both calls") {
  using Sums = Collective<AllReduce, Checked<Ring>, LL>;
  check_mismatch<Sums>("10 int64, sum", "10 double, sum",
                       [](int rank, const Sums& sums) -> Result<void> {
                         std::vector<double> out(1000);
                         std::vector<std::int64_t> other(1000);
                         if (rank == 1) return sums(other.data(), other.data(), 10);
                         return sums(doubles.data(), out.data(), 10);
                       });
  check_mismatch<Sums>("10 double, max", "10 double, sum",
                       [](int rank, const Sums& sums) -> Result<void> {
                         std::vector<double> out(1000);
                         if (rank == 1) return sums(doubles.data(), out.data(), 10, Max{});
                         return sums(doubles.data(), out.data(), 10);
                       });
  using Copies = Collective<Broadcast, Checked<Ring>, Simple>;
  check_mismatch<Copies>("80 bytes, root 3", "80 bytes, root 0",
                         [](int rank, const Copies& copies) -> Result<void> {
                           std::vector<double> out(1000);
                           return copies(doubles.data(), out.data(), 10, rank == 1 ? 3 : 0);
                         });
}
