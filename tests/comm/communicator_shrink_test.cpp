// Communicators of the surviving ranks, before and after a failure of their parent.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/proto/simple.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "support/error_matchers.hpp"
#include "support/loopback_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Tree, Simple, LoopbackTransport>;
using Parts = Collective<AllGather, Pairwise, Simple, LoopbackTransport>;

/// Tests that everything works on `comm`, whose ranks had these numbers in the parent.
Result<void> works(const Communicator& comm, const std::vector<int>& were) {
  const int ranks = int(were.size());
  if (comm.ranks() != ranks) return fail(Errc::internal, "wrong size");
  for (int r = 0; r < ranks; ++r) {
    if (comm.peer(r).rank != r) return fail(Errc::internal, "wrong peers");
  }
  CCL_TRY(auto sums, Sums::create(comm));
  CCL_TRY(auto parts, Parts::create(comm));
  std::vector<int> data(3000, were[std::size_t(comm.rank())]), all(were.size());
  CCL_CHECK(parts(data.data(), all.data(), 1));
  if (all != were) return fail(Errc::internal, "wrong ranks, or in the wrong order");
  CCL_CHECK(sums(data.data(), data.data(), Index(data.size())));
  int sum = 0;
  for (const int r : were) sum += r;
  if (data != std::vector<int>(3000, sum)) return fail(Errc::internal, "wrong sum");
  return comm.barrier();
}

constexpr std::array without_1{1};
}  // namespace

TEST_CASE("ranks of a communicator that is well form one of their own, and it stays well") {
  const auto comms = make(4);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    if (comm.rank() != 1) {
      CCL_TRY(const auto three, comm.shrink({1}));
      CCL_CHECK(works(three, {0, 2, 3}));
      CCL_TRY(const auto half, three.split(three.rank() == 1 ? 7 : 8, 0));
      CCL_CHECK(works(*half, half->ranks() == 1 ? std::vector{2} : std::vector{0, 3}));
      if (three.rank() != 0) {
        CCL_TRY(const auto two, three.shrink(std::array{0, 0}));
        CCL_CHECK(works(two, {2, 3}));
        CCL_CHECK(two.finalize());
      }
      CCL_CHECK(three.finalize());
    }
    CCL_TRY(const auto alone,
            comm.shrink(comm.rank() == 0 ? std::vector{1, 2, 3} : std::vector{0}));
    CCL_CHECK(works(alone, comm.rank() == 0 ? std::vector{0} : std::vector{1, 2, 3}));
    int one = 1, sum = 0;
    CCL_CHECK(sums(&one, &sum, 1));
    if (sum != 4) return fail(Errc::internal, "wrong sum of all");
    return comm.finalize();
  });
}

TEST_CASE("those who stay go on after an abort") {
  const auto comms = make(4);
  const auto results = on_ranks(comms, [](const Communicator& comm) -> Result<void> {
    if (comm.rank() == 1) {
      comm.abort("for a test");
      return comm.status();
    }
    while (comm.barrier()) {
    }
    CCL_TRY(const auto rest, comm.shrink(without_1));
    CCL_CHECK(works(rest, {0, 2, 3}));
    return rest.finalize();
  });
  CHECK(code(results[1]) == Errc::aborted);
  for (const std::size_t r : {0, 2, 3}) {
    INFO((results[r] ? std::string{} : results[r].error().message()));
    CHECK(results[r].has_value());
  }
}

TEST_CASE("shrink ends operations that wait for a rank that does not come, if it is told to") {
  const auto comms = make(3);
  std::atomic<int> begun{0}, done{0};
  const auto results = on_ranks(comms, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    if (comm.rank() == 1) {
      while (done < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return comm.status();
    }
    Result<void> waited;
    std::thread hangs{[&] {
      int x = 1, y = 0;
      ++begun;
      waited = sums(&x, &y, 1);
    }};
    while (begun < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto rest = comm.shrink(without_1, Shrink::abort_parent);
    hangs.join();
    ++done;
    if (!rest) return fail(rest.error());
    CCL_CHECK(works(*rest, {0, 2}));
    if (code(waited) != Errc::aborted) return fail(Errc::internal, "no end of what ran");
    return rest->finalize();
  });
  check_well({results[0], results[2]});
  CHECK(code(results[1]) == Errc::aborted);
}

TEST_CASE("what cannot shrink says why") {
  const auto comms = make(3);
  const auto says_of = [](const Result<Communicator>& made, Errc code, const char* text) {
    REQUIRE(!made);
    INFO(made.error().message());
    CHECK(made.error().code == code);
    CHECK(mentions(made.error().message(), text));
  };
  says_of(comms[2].shrink(std::array{1, 3}), Errc::invalid_argument, "rank 2 on ");
  says_of(comms[2].shrink(std::array{1, 3}), Errc::invalid_argument, "no rank 3 to exclude");
  says_of(comms[2].shrink(std::array{-1}, Shrink::abort_parent), Errc::invalid_argument, "rank -1");
  says_of(comms[2].shrink(std::array{2}), Errc::invalid_argument, "rank 2 excludes itself");
  Config config;
  config.init_timeout_s = -1;
  says_of(comms[2].shrink(without_1, {}, config), Errc::bad_setting, "init_timeout_s");
  // the failed shrink has no effect
  on_all(comms, [](const Communicator& comm) { return comm.barrier(); });
  on_all(comms, [](const Communicator& comm) { return comm.finalize(); });
  says_of(comms[2].shrink(without_1), Errc::invalid_usage, "finalized");
  auto from = Communicator::create(UniqueId{}, 0, 1);
  REQUIRE(from.has_value());
  says_of(from->shrink(without_1), Errc::invalid_argument, "no rank 1 to exclude");
  from->abort();
  const auto again = from->shrink(std::span<const int>{});
  REQUIRE(again.has_value());
  CHECK(works(*again, {0}).has_value());
  const auto moved = std::move(*from);
  says_of(from->shrink(without_1), Errc::invalid_usage, "moved from");
}

TEST_CASE("all get a communicator, or none: one that fails at once fails on all of them") {
  const auto comms = make(4);
  const auto results = on_ranks(comms, [](const Communicator& comm) -> Result<void> {
    if (comm.rank() == 1) return {};
    Config config;
    if (comm.rank() == 3) config.device = 999;  // there is none
    const auto rest = comm.shrink(without_1, Shrink::keep_parent, config);
    if (!rest) return fail(Errc::internal, rest.error().message());
    while (rest->barrier()) {
    }
    if (comm.rank() != 3) {
      CCL_TRY(const auto fewer, rest->shrink(std::array{2}));
      CCL_CHECK(works(fewer, {0, 2}));
      CCL_CHECK(fewer.finalize());
    }
    return rest->status();
  });
  for (const std::size_t r : {0, 2, 3}) {
    REQUIRE(!results[r]);
    INFO(results[r].error().message());
    CHECK(results[r].error().rank == (r == 0 ? 0 : int(r) - 1));
    CHECK(code(results[r]) != Errc::internal);
    if (r != 3) CHECK(results[r].error().peer == 2);
  }
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    if (comm.rank() == 1) return comm.finalize();
    CCL_TRY(const auto rest, comm.shrink(without_1));
    CCL_CHECK(works(rest, {0, 2, 3}));
    return comm.finalize();
  });
}

TEST_CASE("a shrink that waits for a rank ends with an abort of its parent") {
  const auto comms = make(3);
  std::atomic<bool> over{false};
  const auto results = on_ranks(comms, [&](const Communicator& comm) -> Result<void> {
    if (comm.rank() == 2) return {};
    if (comm.rank() == 1) {
      const auto rest = comm.shrink(std::span<const int>{});
      return rest ? Result<void>{} : fail(rest.error());
    }
    std::thread aborts{[&] {
      while (!over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        comm.abort("the user pressed a key");
      }
    }};
    const auto rest = comm.shrink(std::span<const int>{});
    over = true;
    aborts.join();
    return rest ? Result<void>{} : fail(rest.error());
  });
  for (const std::size_t r : {0, 1}) {
    REQUIRE(!results[r]);
    INFO(results[r].error().message());
    CHECK(code(results[r]) == Errc::aborted);
    CHECK(mentions(results[r].error().message(), "pressed a key"));
  }
}
