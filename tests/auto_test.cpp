#include <ccl/ccl.hpp>

#include <algorithm>
#include <functional>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Own = AutoOf<Candidate<Doubling, Simple>, Candidate<Ring, Simple>, Candidate<Tree, LL>>;
using Sums = Collective<AllReduce, Own, Auto, LoopbackTransport>;

void with_ranks(int ranks, const std::function<Result<void>(int, const Communicator&)>& f,
                Config config = {}) {
  check_well(
      on_ranks(ranks, config, [&](const Communicator& comm) { return f(comm.rank(), comm); }));
}
Result<void> expect(bool good, const std::string& what) {
  if (good) return {};
  return fail(Errc::internal, what);
}

/// Tests every size around the changes of composition; every rank must get the sum.
template <class Composed, class F>
Result<void> check_sums(const Communicator& comm, F functor, float expected) {
  CCL_TRY(const auto call, Composed::create(comm));
  for (const Index count : {0, 1, 17, 4096, 300000}) {
    std::vector<float> data(std::size_t(count), float(comm.rank() + 1));
    CCL_CHECK(call(data.data(), data.data(), count, functor));
    for (const float x : data) CCL_CHECK(expect(x == expected, "wrong sum"));
  }
  return {};
}
}  // namespace

TEST_CASE(
    "a call that chooses takes a HostStream as it is, as a call of a named composition does") {
  with_ranks(3, [](int rank, const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    CCL_TRY(const auto copies,
            (Collective<Broadcast, AutoOf<Candidate<Ring, Simple>>>::create(comm)));
    HostStream stream;
    const int root = 1;
    std::vector<float> data(100, float(rank)), copy(100, float(rank));
    CCL_CHECK(sums(data.data(), data.data(), 100, Sum{}, stream));
    CCL_CHECK(copies(copy.data(), copy.data(), 100, root, stream));
    CCL_CHECK(stream.synchronize());
    CCL_CHECK(expect(data[99] == 3 && copy[99] == 1, "wrong result"));
    return comm.finalize();
  });
}

TEST_CASE("an Auto runs, by whatever it chooses") {
  for (const int ranks : {1, 2, 3, 4}) {
    with_ranks(ranks, [&](int, const Communicator& comm) -> Result<void> {
      const float sum = float(ranks * (ranks + 1) / 2);
      CCL_CHECK(check_sums<Sums>(comm, Sum{}, sum));
      // Doubling does not take it.
      return check_sums<Sums>(comm, Avg{}, sum / float(ranks));
    });
  }
}

TEST_CASE("an Auto that was moved from says so") {
  with_ranks(2, [](int rank, const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto p2p, Collective<SendRecv>::create(comm));
    CCL_TRY(auto alls, Collective<AllToAllV>::create(comm));
    const auto own = std::move(sums);
    const auto own_p2p = std::move(p2p);
    const auto own_alls = std::move(alls);
    float x[2] = {}, y[2] = {};
    const std::vector<Index> one(2, 1), at{0, 1};
    const auto refused = [](const Result<void>& result) {
      return !result && result.error().code == Errc::invalid_usage;
    };
    // NOLINTBEGIN(bugprone-use-after-move)
    CCL_CHECK(expect(refused(sums(x, y, 2)), "a moved sum ran"));
    CCL_CHECK(expect(refused(group({}, sums.bind(x, y, 2))), "a moved group ran"));
    CCL_CHECK(expect(refused(p2p.send(x, 1, 1 - rank)), "a moved message went"));
    CCL_CHECK(expect(refused(p2p.group({})), "no moved message went"));
    CCL_CHECK(expect(refused(alls(x, one, at, y, one, at)), "a moved exchange ran"));
    CCL_CHECK(expect(refused(alls.counted(x, y, {})), "a moved exchange ran"));
    CCL_CHECK(expect(sums.ranks() == 0 && sums.plan(100).composition.empty() &&
                         sums.name(100).empty() && sums.compositions().empty(),
                     "a moved sum has a plan"));
    sums = own;
    // NOLINTEND(bugprone-use-after-move)
    return sums(x, y, 2);
  });
}

TEST_CASE("the defaults are Auto, Auto and DefaultTransport") {
  static_assert(
      std::is_same_v<Collective<AllReduce>, Collective<AllReduce, Auto, Auto, DefaultTransport>>);
  with_ranks(3, [&](int rank, const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto all_reduce, Collective<AllReduce>::create(comm));
    CCL_TRY(const auto all_gather, Collective<AllGather>::create(comm));
    CCL_TRY(const auto scatter, Collective<ReduceScatter>::create(comm));
    CCL_TRY(const auto broadcast, Collective<Broadcast>::create(comm));
    CCL_TRY(const auto reduce, Collective<Reduce>::create(comm));
    CCL_TRY(const auto all_to_all, Collective<AllToAll>::create(comm));
    CCL_TRY(const auto gather, Collective<Gather>::create(comm));
    CCL_TRY(const auto pass, Collective<SendRecv>::create(comm));
    for (const Index n : {5, 70000}) {
      std::vector<int> in(std::size_t(3 * n), rank + 1), out(std::size_t(3 * n), -1);
      CCL_CHECK(all_reduce(in.data(), out.data(), n));
      CCL_CHECK(expect(out[0] == 6 && out[std::size_t(n - 1)] == 6, "all_reduce"));
      CCL_CHECK(all_gather(in.data(), out.data(), n));
      for (int r = 0; r < 3; ++r) CCL_CHECK(expect(out[std::size_t(r * n)] == r + 1, "all_gather"));
      CCL_CHECK(scatter(in.data(), out.data(), n, Max{}));
      CCL_CHECK(expect(out[0] == 3, "reduce_scatter"));
      CCL_CHECK(broadcast(in.data(), out.data(), n, 1));
      CCL_CHECK(expect(out[std::size_t(n - 1)] == 2, "broadcast"));
      CCL_CHECK(reduce(in.data(), out.data(), n, Sum{}, 2));
      CCL_CHECK(expect(rank != 2 || out[std::size_t(n - 1)] == 6, "reduce"));
      CCL_CHECK(all_to_all(in.data(), out.data(), n));
      for (int r = 0; r < 3; ++r) CCL_CHECK(expect(out[std::size_t(r * n)] == r + 1, "all_to_all"));
      out.assign(std::size_t(3 * n), -1);
      CCL_CHECK(gather(in.data(), out.data(), n, 0));
      CCL_CHECK(expect(rank != 0 || out[std::size_t(2 * n)] == 3, "gather"));
      CCL_CHECK(pass(in.data(), n, (rank + 1) % 3, out.data(), n, (rank + 2) % 3));
      CCL_CHECK(expect(out[0] == (rank + 2) % 3 + 1, "send_recv"));
    }
    return {};
  });
}

TEST_CASE("a plan says what runs, what it takes, why, and what comes next, alike on all ranks") {
  std::string texts[2][3];
  with_ranks(2, [&](int rank, const Communicator& comm) -> Result<void> {
    if (rank == 0) CCL_CHECK(Sums::predict(comm, 8));  // communicates with no rank
    CCL_TRY(const auto call, Sums::create(comm));
    int i = 0;
    for (const Index bytes : {8, 1 << 16, 1 << 26}) {
      const Choice choice = call.plan(bytes);
      CCL_TRY(const double us, Sums::predict(comm, bytes));
      CCL_CHECK(expect(us == choice.us, "predicted without it"));
      texts[rank][i++] = choice.text();
      CCL_CHECK(expect(choice.us > 0 && choice.runner_up_us >= choice.us, "times"));
      CCL_CHECK(
          expect(choice.composition != choice.runner_up && !choice.runner_up.empty(), "next"));
      CCL_CHECK(expect(choice.plan.slot_bytes > 0 && choice.channels >= 1 && choice.lanes == 1 &&
                           choice.chunk_bytes >= choice.plan.slot_bytes,
                       "plan"));
      CCL_CHECK(expect(choice.why.find("2 ranks over shm") != std::string::npos, choice.why));
      const std::string named = "all_reduce/" + choice.composition + "/loopback";
      CCL_CHECK(expect(call.name(bytes) == named, call.name(bytes)));
    }
    return {};
  });
  for (int i = 0; i < 3; ++i) CHECK(texts[0][i] == texts[1][i]);
  CHECK(texts[0][0].starts_with("Doubling/Simple: "));
  CHECK(texts[0][2].starts_with("Ring/Simple: "));
}

TEST_CASE("CCL_ALGO and CCL_PROTO narrow an Auto; nothing left is an error that says why") {
  const auto compositions = [](const char* algo, const char* proto) {
    const Environment a{"CCL_ALGO", algo}, p{"CCL_PROTO", proto};
    std::string names, error;
    with_ranks(2, [&](int rank, const Communicator& comm) -> Result<void> {
      const auto call = Sums::create(comm);
      if (rank != 0) return {};
      if (!call) {
        error = call.error().message();
        return expect(call.error().code == Errc::bad_setting, "code");
      }
      for (const auto& name : call->compositions()) names += name + " ";
      return {};
    });
    return names + error;
  };
  CHECK(compositions("", "") == "Doubling/Simple Ring/Simple ");
  CHECK(compositions("tree", "") == "Tree/LL ");
  CHECK(compositions("^doubling,tree", "") == "Ring/Simple ");
  CHECK(compositions("allreduce:ring,tree;doubling", "^LL") == "Ring/Simple ");
  CHECK(compositions("allgather:ring", "ll") == "Tree/LL ");
  const std::string none = compositions("ring", "LL");
  CHECK(none.find("all_reduce has no candidate left") != none.npos);
  CHECK(none.find("(Doubling/Simple, Tree/LL: CCL_ALGO is ring; Ring/Simple: CCL_PROTO is LL); "
                  "append \";allreduce:Doubling\" to CCL_ALGO") != none.npos);
}

TEST_CASE("NCCL_PROTO leaves CPU ranks their protocol, which NCCL does not have") {
  using Any = Collective<AllReduce, AutoOf<Candidate<Ring, Simple>, Candidate<Tree, Simple>>>;
  for (const char* const protocols : {"LL", "LL128", "^Simple", "allreduce:LL,LL128", ","}) {
    const Environment proto{"NCCL_PROTO", protocols}, algo{"NCCL_ALGO", "Ring"};
    with_ranks(2, [](int, const Communicator& comm) -> Result<void> {
      CCL_TRY(const auto call, Any::create(comm));
      return expect(call.compositions() == std::vector<std::string>{"Ring/Simple"}, "left");
    });
  }
}

TEST_CASE("a CCL_TRANSPORT that leaves nothing of an Auto is an error of the setting") {
  using Any = Collective<AllReduce, AutoOf<Candidate<Ring, Simple>>, Auto,
                         AnyOf<LoopbackTransport, ShmTransport>>;
  const Environment transport{"CCL_TRANSPORT", "socket"};
  with_ranks(2, [](int, const Communicator& comm) -> Result<void> {
    const auto call = Any::create(comm);
    if (call) return fail(Errc::internal, "it was created");
    const std::string text = call.error().message();
    CCL_CHECK(expect(call.error().code == Errc::bad_setting, text.c_str()));
    return expect(text.find("CCL_TRANSPORT is socket") != text.npos, text.c_str());
  });
}

TEST_CASE("an Auto makes do with what the memory budget holds") {
  Config config;
  config.memory_budget_bytes = 96 << 10;  // the first candidate takes half of what there is
  with_ranks(
      4,
      [&](int, const Communicator& comm) -> Result<void> {
        CCL_CHECK(check_sums<Sums>(comm, Sum{}, 10));
        return expect(comm.memory_used() <= comm.memory_budget(), "over the budget");
      },
      config);
}

TEST_CASE("Fused of a Collective that chooses runs as that of a named algorithm, on one CPU rank") {
  using By = Collective<AllReduce, TwoShot, LL128, DefaultTransport>;
  using Named = Fused<AsIs<float>, By, AddRmsNorm<float>>;
  using Any = Fused<AsIs<float>, Collective<AllReduce>, AddRmsNorm<float>>;
  constexpr int rows = 3, length = 1000;
  alignas(16) static float in[rows * length], one[rows * length], other[rows * length];
  for (int i = 0; i < rows * length; ++i) in[i] = float(i % 17) - 8;
  with_ranks(1, [](int, const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto named, Named::create(comm));
    CCL_TRY(const auto any, Any::create(comm));
    CCL_CHECK(expect(any.name(rows, length).find("OneShot") != std::string::npos, "another"));
    CCL_CHECK(named(in, rows, length, {nullptr, nullptr, one}));
    CCL_CHECK(any(in, rows, length, {nullptr, nullptr, other}));
    return expect(std::equal(one, one + rows * length, other) && one[1] != 0, "another result");
  });
}
