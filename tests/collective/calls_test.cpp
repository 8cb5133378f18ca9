// Calls: reasons to refuse them, ways to end them, and their results.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/element/data_type.hpp>
#include <ccl/group.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "comm/state.hpp"
#include "support/loopback_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Tree, Simple, LoopbackTransport>;
using Copies = Collective<Broadcast, Tree, LL, LoopbackTransport>;
using P2p = Collective<SendRecv, Pairwise, LL, LoopbackTransport>;
using Alls = Collective<AllToAll, Pairwise, LL, LoopbackTransport>;
using AllsV = Collective<AllToAllV, Pairwise, LL, LoopbackTransport>;

// Functors whose names begin alike, and types without a name.
template <int n>
struct Clipped : Sum {
  static constexpr const char* name = n == 0 ? "sum, clipped to the range of the first half"
                                             : "sum, clipped to the range of the second half";
};
template <class T>
struct Boxed {
  T value = 0;
  friend CCL_HD Boxed operator+(const Boxed& a, const Boxed& b) { return {a.value + b.value}; }
};
}  // namespace

TEST_CASE("misuse is a typed error that names the value and the rank") {
  const auto comms = make(2);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto copies, Copies::create(comm));
    CCL_TRY(auto p2p, P2p::create(comm));
    CCL_TRY(auto alls, Alls::create(comm));
    CCL_TRY(auto alls_v, AllsV::create(comm));
    float x[4] = {}, y[4] = {};
    const float* none = nullptr;
    // Catch2's assertions belong to one thread.
    if (comm.rank() == 0) {
      const auto null = sums(none, y, 4);
      CHECK(code(null) == Errc::invalid_argument);
      CHECK(null.error().message().find("send is null and should hold 4 elements") !=
            std::string::npos);
      CHECK(null.error().rank == 0);
      CHECK(code(sums(x, static_cast<float*>(nullptr), 4)) == Errc::invalid_argument);
      CHECK(code(sums(x, y, -1)) == Errc::invalid_argument);
      CHECK(code(sums(x, y, Index{1} << 61)) == Errc::invalid_argument);
      CHECK(code(copies(x, y, 4, 2)) == Errc::invalid_argument);
      CHECK(code(copies(x, y, 4, -1)) == Errc::invalid_argument);
      CHECK(copies(x, y, 4, 7).error().message().find("rank 7 is not in the communicator") !=
            std::string::npos);
      CHECK(code(p2p.send(x, 4, 5)) == Errc::invalid_argument);
      CHECK(code(p2p.recv(static_cast<float*>(nullptr), 1, 1)) == Errc::invalid_argument);
      const auto in_place = alls(x, x, 1);
      CHECK(code(in_place) == Errc::invalid_argument);
      CHECK(in_place.error().rank == 0);
      const std::vector<Index> one(1), two(2);
      CHECK(code(alls_v(x, one, two, y, two, two)) == Errc::invalid_argument);
      const std::vector<Index> inside(2, 1), before(2, -1), none_there(2);
      const auto outside = alls_v(x, inside, before, y, inside, none_there);
      CHECK(code(outside) == Errc::invalid_argument);
      CHECK(outside.error().message().find("send offset -1 of 4-byte elements") !=
            std::string::npos);
      CHECK(code(alls_v(x, inside, none_there, y, inside, before)) == Errc::invalid_argument);
    }
    Plan odd;
    odd.slot_bytes = 100;
    const auto refused = Sums::create(comm, odd);  // by all ranks
    if (refused || refused.error().code != Errc::invalid_argument) {
      return fail(Errc::internal, refused ? "an odd plan" : refused.error().message());
    }
    CCL_CHECK(comm.finalize());
    if (comm.rank() == 0) {
      CHECK(code(sums(x, y, 4)) == Errc::invalid_usage);
      CHECK(code(comm.finalize()) == Errc::invalid_usage);
      CHECK(code(comm.split(0, 0).transform([](auto&&) {})) == Errc::invalid_usage);
    }
    return {};
  });
  CHECK(code(Communicator::create(UniqueId{}, 3, 2).transform([](auto&&) {})) ==
        Errc::invalid_argument);
  CHECK(code(Communicator::create(UniqueId{}, 0, 0).transform([](auto&&) {})) ==
        Errc::invalid_argument);
}

TEST_CASE("a refused call is not in the flight recorder") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto p2p, P2p::create(comm));
    float x[4] = {}, y[4] = {};
    auto* const cuda = reinterpret_cast<CUstream_st*>(x);  // not of a CPU rank
    if (code(sums(x, y, 4, Sum{}, cuda)) != Errc::invalid_argument ||
        code(group(cuda, sums.bind(x, y, 4))) != Errc::invalid_argument) {
      return fail(Errc::internal, "a CUDA stream was taken");
    }
    CCL_CHECK(sums(x, y, 4));
    CCL_CHECK(comm.finalize());
    const bool refused = code(sums(x, y, 4)) == Errc::invalid_usage &&
                         code(p2p.send(x, 4, 1 - comm.rank())) == Errc::invalid_usage &&
                         code(group({}, sums.bind(x, y, 4))) == Errc::invalid_usage &&
                         code(comm.barrier()) == Errc::invalid_usage;
    const RankStatus mine = detail::Access::state(comm)->observers.status();
    if (refused && mine.called == 1 && mine.operations.size() == 1) return {};
    return fail(Errc::internal, "refused calls are in the flight recorder");
  });
}

TEST_CASE("a plan that leaves the size of slots open gets the protocol's") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm, Plan{.slot_count = 4}));
    const Plan got = sums.plan();
    if (got.slot_count != 4) return fail(Errc::internal, "other slots");
    if (got.slot_bytes != Simple::default_slot_bytes) return fail(Errc::internal, "other sizes");
    return comm.finalize();
  });
}

TEST_CASE("with checking on, the error of ranks that disagree names the difference") {
  Config config;
  config.check = true;
  struct Wrong {
    const char* what;
    Index counts[2];
    bool other_type = false, other_op = false, other_name = false, other_size = false;
  };
  for (const Wrong& wrong :
       {Wrong{.what = "count", .counts = {4, 3}},
        Wrong{.what = "type", .counts = {4, 4}, .other_type = true},
        Wrong{.what = "reduction", .counts = {4, 4}, .other_op = true},
        Wrong{.what = "reduction", .counts = {4, 4}, .other_name = true},
        Wrong{.what = "size of an element", .counts = {4, 4}, .other_size = true}}) {
    const auto comms = make(2, config);
    std::vector<std::thread> threads;
    std::vector<Result<void>> results(2);
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        auto sums = Sums::create(comms[r]);
        if (!sums) return;
        float x[4] = {}, y[4] = {};
        int i[4] = {}, j[4] = {};
        if (!(*sums)(x, y, 4)) return;
        if (wrong.other_type && r == 1) {
          results[r] = (*sums)(i, j, wrong.counts[r]);
        } else if (wrong.other_op && r == 1) {
          results[r] = (*sums)(x, y, wrong.counts[r], Max{});
        } else if (wrong.other_name) {
          results[r] = r == 1 ? (*sums)(x, y, 4, Clipped<1>{}) : (*sums)(x, y, 4, Clipped<0>{});
        } else if (wrong.other_size) {
          Boxed<float> a[4], b[4];
          Boxed<double> c[4], d[4];
          results[r] = r == 1 ? (*sums)(a, b, 4) : (*sums)(c, d, 4);
        } else {
          results[r] = (*sums)(x, y, wrong.counts[r]);
        }
      });
    }
    for (auto& t : threads) t.join();
    for (int r = 0; r < 2; ++r) {
      REQUIRE(code(results[r]) == Errc::mismatch);
      CHECK(results[r].error().what.find(wrong.what) != std::string::npos);
      CHECK(results[r].error().peer == 1 - r);
    }
  }
}

TEST_CASE("a late rank ends the others' wait at the deadline, and the error names it") {
  Config config;
  config.timeout_s = 0.3;
  const auto comms = make(3, config);
  std::vector<Result<void>> results(3);
  std::vector<Result<Sums>> sums(3, fail(Errc::internal, "not made"));  // outlive the peers' set-up
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      sums[r] = Sums::create(comms[r]);
      if (!sums[r]) results[r] = fail(sums[r].error());
      if (!sums[r] || r == 2) return;  // rank 2 never calls
      std::vector<float> x(1000), y(1000);
      results[r] = (*sums[r])(x.data(), y.data(), 1000);
      if (results[r]) results[r] = (*sums[r])(x.data(), y.data(), 1000);
    });
  }
  for (auto& t : threads) t.join();
  // Rank 0 waits for rank 2 and rank 1 for rank 0. The first that fails reports it to the other.
  for (int r = 0; r < 2; ++r) {
    INFO((results[r] ? std::string{"ok"} : results[r].error().message()));
    CHECK((code(results[r]) == Errc::timed_out || code(results[r]) == Errc::aborted));
    CHECK(results[r].error().what.find("no progress for 0.3 s") != std::string::npos);
    CHECK(results[r].error().peer >= 0);
  }
  CHECK(!comms[0].status().has_value());
}

TEST_CASE("abort ends a wait on every rank") {
  const auto comms = make(2);
  std::vector<Result<void>> results(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      auto sums = Sums::create(comms[r]);
      if (!sums) {
        results[r] = fail(sums.error());
        return;
      }
      if (r == 1) {
        comms[1].abort("the test says so");
        results[1] = comms[1].status();
        return;
      }
      std::vector<float> x(100), y(100);
      results[0] = (*sums)(x.data(), y.data(), 100);
    });
  }
  for (auto& t : threads) t.join();
  for (int r = 0; r < 2; ++r) {
    REQUIRE(code(results[r]) == Errc::aborted);
    CHECK(results[r].error().what.find("the test says so") != std::string::npos);
  }
}

TEST_CASE("calls on a host stream run in order and return at once") {
  const auto comms = make(2);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    HostStream stream;
    CCL_TRY(auto sums, Sums::create(comm));
    std::vector<double> x(5000, 1.0);
    for (int i = 0; i < 10; ++i) CCL_CHECK(sums(x.data(), x.data(), 5000, Sum{}, stream));
    CCL_CHECK(stream.synchronize());
    return x[4999] == 1024.0 ? Result<void>{} : fail(Errc::internal, "out of order");
  });
}

TEST_CASE("types and functors of every kind, one to eight ranks") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const auto comms = make(ranks);
    on_all(comms, [ranks](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sums, Sums::create(comm));
      const auto all_types = [&]<class T>(TypeTag<T>) -> Result<void> {
        for (const Index count : {Index{1}, Index{33}, Index{1027}}) {
          std::vector<T> in(count), out(count);
          const auto at = [](int rank, Index i) { return float((i + 3 * rank) % 3 + 1); };
          for (Index i = 0; i < count; ++i) {
            in[i] = Element<T>::narrow(accumulate_t<T>(at(comm.rank(), i)));
          }
          const auto check = [&](auto op, auto want) -> Result<void> {
            CCL_CHECK(sums(in.data(), out.data(), count, op));
            for (Index i = 0; i < count; ++i) {
              float w = at(0, i);
              for (int r = 1; r < ranks; ++r) w = want(w, at(r, i));
              if (float(Element<T>::widen(out[i])) == w) continue;
              return fail(Errc::internal,
                          fmt::format("{} of {} ranks, element {} of {}: {} instead of {}",
                                      detail::type_label<T>(), ranks, i, count,
                                      float(Element<T>::widen(out[i])), w));
            }
            return {};
          };
          // Sizes at which every partial result is exact: e5m2 counts to 8, e4m3 to 16.
          if (sizeof(T) > 1 || ranks <= 2) {
            CCL_CHECK(check(Sum{}, [](float a, float b) { return a + b; }));
          }
          CCL_CHECK(check(Max{}, [](float a, float b) { return std::max(a, b); }));
          CCL_CHECK(check(Min{}, [](float a, float b) { return std::min(a, b); }));
          if (ranks <= 2 && sizeof(T) > 1)
            CCL_CHECK(check(Prod{}, [](float a, float b) { return a * b; }));
        }
        return {};
      };
      for (int t = 0; t < data_type_count; ++t) CCL_CHECK(with_type(DataType(t), all_types));
      return {};
    });
  }
}
