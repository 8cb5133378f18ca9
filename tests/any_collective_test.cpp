#include <ccl/algo/ordered_tree.hpp>
#include <ccl/any_collective.hpp>
#include <ccl/auto.hpp>

#include <fmt/format.h>

#include <numeric>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int ranks = 3;

/// The product of the signs.
struct Signs {
  static constexpr const char* name = "signs";
  float unit = 1;
  template <class A>
  CCL_HD constexpr A operator()(const A& a, const A& b) const {
    return (a < A(0)) == (b < A(0)) ? A(unit) : -A(unit);
  }
};
/// Functor that is not commutative, so a ring must not run it.
struct Left {
  static constexpr const char* name = "left";
  static constexpr bool commutative = false;
  template <class A>
  CCL_HD constexpr A operator()(const A& a, const A&) const {
    return a;
  }
};

using Rings = Candidates<Candidate<Ring, LL>, Candidate<Ring, Simple>>;
using AllReduces =
    AnyCollective<AllReduce, Candidates<Candidate<Ring, LL>, Candidate<Tree, Simple>>,
                  Types<float, std::int32_t>, Reductions<Sum, PreMulSum, Signs, Left>>;
using ReduceScatters = AnyCollective<ReduceScatter, Candidates<Candidate<Ring, Simple>>,
                                     Types<bfloat16>, Reductions<Max>>;
using Reduces =
    AnyCollective<Reduce, Candidates<Candidate<Ring, Simple>>, Types<double>, Reductions<Min>>;
using AllGathers = AnyCollective<AllGather, Rings>;
using Broadcasts = AnyCollective<Broadcast, Rings>;
using Pairs = Candidates<Candidate<Pairwise, Simple>>;
using AllToAlls = AnyCollective<AllToAll, Pairs>;
using AllToAllVs = AnyCollective<AllToAllV, Pairs>;
using Gathers = AnyCollective<Gather, Pairs>;
using Scatters = AnyCollective<Scatter, Pairs>;
using SendRecvs = AnyCollective<SendRecv, Pairs>;

void on_all(const RankBody& body) {
  Config config;
  config.timeout_s = 60;
  check_well(on_ranks(ranks, config, body));
}
Result<void> want(bool good, const char* what) {
  return good ? Result<void>{} : fail(Errc::internal, what);
}
/// `call` must fail with `code` and a text with `part`.
Result<void> refused(const Result<void>& call, Errc code, const char* part) {
  if (call) return fail(Errc::internal, std::string{"not refused: "} + part);
  const bool signed_by_rank = call.error().rank >= 0 && !call.error().host.empty();
  if (code != Errc::invalid_usage && !signed_by_rank) {
    return fail(Errc::internal, "no rank or host: " + call.error().message());
  }
  if (call.error().code == code && call.error().what.find(part) != std::string::npos) return {};
  return fail(Errc::internal,
              fmt::format("\"{}\" does not say \"{}\"", call.error().message(), part));
}
}  // namespace

TEST_CASE("all operations, with types and reductions that are known at run time") {
  on_all([](const Communicator& comm) -> Result<void> {
    const int me = comm.rank();
    {
      CCL_TRY(auto all_reduce, AllReduces::create(comm));
      std::vector<float> x(100, float(me + 1)), y(100);
      CCL_CHECK(all_reduce(x.data(), y.data(), 100, DataType::float32, "sum"));
      CCL_CHECK(want(y[99] == 6, "sum of floats"));
      std::vector<int> i(50'000, -me), j(50'000);
      CCL_CHECK(all_reduce(i.data(), j.data(), 50'000, DataType::int32, Sum{}));
      CCL_CHECK(want(j[49'999] == -3, "sum of ints"));
      CCL_CHECK(all_reduce(x.data(), y.data(), 100, DataType::float32, PreMulSum{0.5}, {}, "Tree"));
      CCL_CHECK(want(y[0] == 3, "scaled sum"));
      CCL_CHECK(all_reduce(x.data(), y.data(), 100, DataType::float32, Signs{2}));
      CCL_CHECK(want(y[0] == 2, "own functor with a value"));
      HostStream stream;
      CCL_CHECK(all_reduce(x.data(), x.data(), 100, DataType::float32, "sum", stream));
      CCL_CHECK(
          all_reduce(x.data(), x.data(), 100, DataType::float32, "sum", stream, "Tree/Simple"));
      CCL_CHECK(stream.synchronize());
      CCL_CHECK(want(x[0] == 18, "on a stream"));
    }
    {
      CCL_TRY(auto reduce_scatter, ReduceScatters::create(comm));
      std::vector<bfloat16> x(ranks * 7), y(7);
      for (int i = 0; i < ranks * 7; ++i) x[i] = bfloat16(float(i / 7 * 10 + me));
      CCL_CHECK(reduce_scatter(x.data(), y.data(), 7, DataType::bfloat16, "max"));
      CCL_CHECK(want(float(y[6]) == float(10 * me + 2), "reduce_scatter"));
    }
    {
      CCL_TRY(auto reduce, Reduces::create(comm));
      double x = 5 - me, y = 77;
      CCL_CHECK(reduce(&x, &y, 1, DataType::float64, Min{}, 1));
      CCL_CHECK(want(y == (me == 1 ? 3 : 77), "reduce"));
    }
    {
      CCL_TRY(auto all_gather, AllGathers::create(comm));
      std::vector<std::int16_t> x(9, std::int16_t(me)), y(9 * ranks);
      CCL_CHECK(all_gather(x.data(), y.data(), 9, DataType::int16));
      CCL_CHECK(want(y[0] == 0 && y[9] == 1 && y[26] == 2, "all_gather"));
      std::vector<Word> big(20'000, Word(me)), all(20'000 * ranks);
      CCL_CHECK(all_gather(big.data(), all.data(), 20'000, DataType::uint64));
      CCL_CHECK(want(all[0] == 0 && all[59'999] == 2, "all_gather of 64 bits"));
    }
    {
      CCL_TRY(auto broadcast, Broadcasts::create(comm));
      float8_e4m3 x{float(me)}, y{float(0)};
      CCL_CHECK(broadcast(&x, &y, 1, DataType::float8_e4m3, 2, {}, "Ring/Simple"));
      CCL_CHECK(want(float(y) == 2, "broadcast"));
    }
    std::vector<int> x(ranks * 2), y(ranks * 2);
    for (int p = 0; p < ranks; ++p) x[2 * p] = x[2 * p + 1] = 10 * me + p;
    {
      CCL_TRY(auto all_to_all, AllToAlls::create(comm));
      CCL_CHECK(all_to_all(x.data(), y.data(), 2, DataType::int32));
      for (int p = 0; p < ranks; ++p) CCL_CHECK(want(y[2 * p + 1] == 10 * p + me, "all_to_all"));
    }
    {
      CCL_TRY(auto all_to_all_v, AllToAllVs::create(comm));
      // Rank r sends r + 1 elements to each rank, so those of rank p arrive as p + 1 elements.
      std::vector<Index> sends(ranks, me + 1), recvs(ranks), from(ranks), to(ranks);
      for (int p = 0; p < ranks; ++p) {
        recvs[p] = p + 1;
        to[p] = p == 0 ? 0 : to[p - 1] + p;
      }
      std::vector<double> out(me + 1, me), in(6);
      CCL_CHECK(all_to_all_v(out.data(), sends, from, in.data(), recvs, to, DataType::float64));
      CCL_CHECK(want(in == std::vector<double>{0, 1, 1, 2, 2, 2}, "all_to_all_v"));
    }
    {
      CCL_TRY(auto gather, Gathers::create(comm));
      CCL_CHECK(gather(x.data(), me == 1 ? y.data() : nullptr, 2, DataType::int32, 1));
      for (int p = 0; me == 1 && p < ranks; ++p) CCL_CHECK(want(y[2 * p] == 10 * p, "gather"));
      CCL_TRY(auto scatter, Scatters::create(comm));
      CCL_CHECK(scatter(me == 0 ? x.data() : nullptr, y.data(), 2, DataType::int32, 0));
      CCL_CHECK(want(y[1] == me, "scatter"));
    }
    {
      CCL_TRY(auto p2p, SendRecvs::create(comm));
      const int next = (me + 1) % ranks, prev = (me + ranks - 1) % ranks;
      int in = -1, out = me;
      char letter = char('a' + me), got = 0;
      const AnyMessage messages[] = {{true, &out, 1, DataType::int32, next},
                                     {false, &in, 1, DataType::int32, prev},
                                     {true, &letter, 1, DataType::uint8, prev},
                                     {false, &got, 1, DataType::uint8, next}};
      CCL_CHECK(p2p.group(messages));
      CCL_CHECK(want(in == prev && got == 'a' + next, "group"));
      if (me == 0) CCL_CHECK(p2p.send(&out, 1, DataType::int32, 2));
      if (me == 2) CCL_CHECK(p2p.recv(&in, 1, DataType::int32, 0));
      CCL_CHECK(want(me != 2 || in == 0, "send and recv"));
    }
    return {};
  });
}

TEST_CASE("a collective that was moved from says so") {
  on_all([](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto all_reduce, AllReduces::create(comm));
    CCL_TRY(auto all_gather, AllGathers::create(comm));
    const auto own = std::move(all_reduce);
    const auto own_gather = std::move(all_gather);
    float x = 1, y = 0;
    // NOLINTBEGIN(bugprone-use-after-move)
    CCL_CHECK(refused(all_reduce(&x, &y, 1, DataType::float32, "sum"), Errc::invalid_usage,
                      "moved from"));
    CCL_CHECK(refused(all_gather(&x, &y, 1, DataType::float32), Errc::invalid_usage, "moved from"));
    // NOLINTEND(bugprone-use-after-move)
    CCL_CHECK(own(&x, &y, 1, DataType::float32, "sum"));
    return want(y == ranks, "sum after a move");
  });
}

TEST_CASE("what a program does not list is an error that says what there is") {
  on_all([](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto all_reduce, AllReduces::create(comm));
    CCL_TRY(auto all_gather, AllGathers::create(comm));
    float x = 1, y = 0;
    CCL_CHECK(refused(all_reduce(&x, &y, 1, DataType::float16, "sum"), Errc::not_supported,
                      "all_reduce has no code for type half in this program (it lists float, "
                      "int32)"));
    CCL_CHECK(refused(all_reduce(&x, &y, 1, DataType::float32, "max"), Errc::not_supported,
                      "no code for reduction max in this program (it lists sum, mulsum, signs, "
                      "left)"));
    CCL_CHECK(refused(all_reduce(&x, &y, 1, DataType::float32, "sum", {}, "Ring/Simple"),
                      Errc::not_supported,
                      "no code for Ring/Simple in this program (it lists Ring/LL/any, "
                      "Tree/Simple/any)"));
    CCL_CHECK(refused(all_reduce(&x, &y, 1, DataType::float32, "sum", {}, "Ring/L"),
                      Errc::not_supported, "no code for Ring/L "));
    CCL_CHECK(refused(all_reduce(&x, &y, 1, DataType::float32, "left"), Errc::not_supported,
                      "no code for left of float by Ring"));
    CCL_CHECK(refused(all_reduce(&x, &y, 1, DataType::float32, "mulsum"), Errc::invalid_argument,
                      "mulsum needs its value"));
    CCL_CHECK(refused(all_gather(&x, &y, 1, DataType(99)), Errc::not_supported, "type number 99"));
    CCL_CHECK(refused(all_reduce(nullptr, &y, 1, DataType::float32, "sum"), Errc::invalid_argument,
                      "send is null"));
    // Nothing of this was started: the communicator is well, and the ranks are in step.
    CCL_CHECK(all_reduce(&x, &y, 1, DataType::float32, "sum"));
    return want(y == ranks, "sum after refusals");
  });
}

TEST_CASE("without a name, the first candidate that is meant for the size is taken") {
  on_all([](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto all_reduce, AllReduces::create(comm));
    CCL_TRY(auto all_gather, AllGathers::create(comm));
    CCL_TRY(auto p2p, SendRecvs::create(comm));
    const auto is = [](const Result<std::string>& choice, const char* name) {
      return want(choice && *choice == name, name);
    };
    CCL_CHECK(is(all_reduce.choice(16'384, DataType::float32), "Ring/LL/any"));
    CCL_CHECK(is(all_reduce.choice(16'385, DataType::float32), "Tree/Simple/any"));
    CCL_CHECK(is(all_gather.choice(5'461, DataType::float32), "Ring/LL/any"));
    CCL_CHECK(is(all_gather.choice(5'462, DataType::float32), "Ring/Simple/any"));
    CCL_CHECK(is(p2p.choice(1, DataType::uint8), "Pairwise/Simple/any"));
    return want(AllReduces::names() == "Ring/LL/any, Tree/Simple/any", "names");
  });
}

TEST_CASE("without a name, candidates that cannot run the reduction are passed over") {
  using Mixed = AnyCollective<
      AllReduce,
      Candidates<Candidate<Ring, LL>, Candidate<OrderedTree, Simple>, Candidate<Ring, Simple>>,
      Types<float, std::int32_t>, Reductions<Sum, Left>>;
  const auto check = [](const Communicator& comm, const Mixed& mixed, Index count,
                        std::string_view which) -> Result<void> {
    const std::vector<std::int32_t> in(size_t(count), comm.rank() + 5);
    std::vector<std::int32_t> out(size_t(count), -1);
    CCL_CHECK(mixed(in.data(), out.data(), count, DataType::int32, "left", {}, which));
    return want(out == std::vector<std::int32_t>(size_t(count), 5), "the first rank's");
  };
  on_all([&](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto mixed, Mixed::create(comm));
    for (const Index count : {1, 16'385, 1 << 20}) CCL_CHECK(check(comm, mixed, count, {}));
    CCL_CHECK(check(comm, mixed, 1, "OrderedTree"));
    std::int32_t x = 1, y = 0;
    CCL_CHECK(refused(mixed(&x, &y, 1, DataType::int32, "left", {}, "Ring/LL"), Errc::not_supported,
                      "no code for left of int32 by Ring"));
    CCL_CHECK(mixed(&x, &y, 1, DataType::int32, "sum"));
    return want(y == ranks, "sum");
  });
  const Environment env{"CCL_ALGO", "Ring"};
  on_all([&](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto mixed, Mixed::create(comm));
    std::int32_t x = 1, y = 0;
    return refused(mixed(&x, &y, 1, DataType::int32, "left"), Errc::bad_setting,
                   "may not run what runs this reduction (CCL_ALGO or CCL_PROTO exclude it)");
  });
}

TEST_CASE("CCL_ALGO and CCL_PROTO narrow the list, for one operation if they name it") {
  const auto leaves = [](const char* op, const char* algo, const char* proto) {
    return detail::may_compose(op, algo, proto).has_value();
  };
  CHECK(leaves("all_reduce", "Ring", "LL"));
  {
    const Environment env{"CCL_ALGO", "^ring"};
    CHECK_FALSE(leaves("all_reduce", "Ring", "LL"));
    CHECK(leaves("all_reduce", "Tree", "LL"));
  }
  {
    const Environment env{"CCL_ALGO", "Ring;allreduce:Tree,OneShot"};
    CHECK_FALSE(leaves("all_reduce", "Ring", "LL"));
    CHECK(leaves("all_reduce", "OneShot", "LL"));
    CHECK(leaves("all_gather", "Ring", "LL"));
    CHECK_FALSE(leaves("all_gather", "Tree", "LL"));
  }
  {
    const Environment env{"CCL_ALGO", "broadcast:Ring;Tree"};
    CHECK(leaves("broadcast", "Ring", "LL"));
    CHECK_FALSE(leaves("broadcast", "Tree", "LL"));
    CHECK(leaves("reduce", "Tree", "LL"));
  }
  {
    const Environment env{"NCCL_PROTO", "LL128,Simple"};
    CHECK_FALSE(leaves("all_reduce", "Ring", "LL"));
    CHECK(leaves("all_reduce", "Ring", "LL128"));
    on_all([](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto all_reduce, AllReduces::create(comm));
      float x = 1, y = 0;
      CCL_CHECK(all_reduce(&x, &y, 1, DataType::float32, "sum"));
      CCL_TRY(const auto choice, all_reduce.choice(1, DataType::float32));
      CCL_CHECK(want(y == ranks && choice == "Tree/Simple/any", "the candidate that is left"));
      const auto excluded = all_reduce(&x, &y, 1, DataType::float32, "sum", {}, "Ring/LL");
      CCL_CHECK(want(!excluded && excluded.error().rank == comm.rank(), "whose error it is"));
      return refused(excluded, Errc::bad_setting, "all_reduce may not run Ring/LL");
    });
  }
  const Environment env{"CCL_ALGO", "Pairwise"};
  on_all([](const Communicator& comm) -> Result<void> {
    const auto made = AllReduces::create(comm);
    return want(!made && made.error().code == Errc::bad_setting &&
                    made.error().what.find("exclude all of Ring/LL/any, Tree/Simple/any") !=
                        std::string::npos,
                "nothing left");
  });
}

TEST_CASE("what chooses by the cost model stands in a list as well") {
  using Chooses = AutoOf<Candidate<Doubling, Simple>, Candidate<Ring, Simple>>;
  using Sums = AnyCollective<AllReduce, Candidates<Candidate<Chooses, Auto>>, Types<float>,
                             Reductions<Sum, Max>>;
  CHECK(Sums::names() == "Auto/Auto/any");
  on_all([](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    for (const Index count : {1, 100000}) {
      std::vector<float> data(std::size_t(count), float(comm.rank() + 1));
      CCL_CHECK(sums(data.data(), data.data(), count, DataType::float32, "sum"));
      CCL_CHECK(want(data == std::vector<float>(std::size_t(count), 6), "the sum is wrong"));
      CCL_CHECK(sums(data.data(), data.data(), count, DataType::float32, "max", {}, "Auto"));
      CCL_CHECK(want(data.back() == 6, "the largest is wrong"));
    }
    CCL_TRY(const auto choice, sums.choice(1, DataType::float32));
    CCL_CHECK(want(choice == "Auto/Auto/any", "another candidate is taken"));
    return want(!sums(nullptr, nullptr, 1, DataType::float64, "sum"), "a type is not listed");
  });
  const Environment env{"CCL_ALGO", "Tree"};  // `Auto` tests its own candidates
  on_all([](const Communicator& comm) -> Result<void> {
    const auto sums = Sums::create(comm);
    return want(!sums && sums.error().code == Errc::bad_setting, "CCL_ALGO does not count");
  });
}
