// Surviving ranks when others are lost, stopped, late or of another version of the call.
#include <ccl/detail/runtime/bootstrap.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "support/bootstrap_ranks.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Ranks = std::vector<int>;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}
void wait_for(const std::atomic<int>& count, int wanted) {
  for (int ms = 0; count < wanted && ms < 30'000; ++ms) sleep_ms(1);
}

/// Shrinks to all ranks except those of `gone`, and tests that the result works.
Result<std::unique_ptr<detail::Bootstrap>> works_without(detail::Bootstrap& b, const Ranks& gone,
                                                         double deadline_s = 20) {
  CCL_TRY(auto rest, b.shrink(gone, {deadline_s, nullptr}));
  CCL_CHECK(gather_works(*rest));
  return rest;
}
}  // namespace

TEST_CASE("those who stay are all but the excluded ones") {
  CHECK(detail::surviving_ranks(2, 5, Ranks{4, 0, 4}).value() == Ranks{1, 2, 3});
  CHECK(detail::surviving_ranks(2, 5, Ranks{}).value() == Ranks{0, 1, 2, 3, 4});
  CHECK(detail::surviving_ranks(0, 2, Ranks{1}).value() == Ranks{0});
  const auto wrong = [](const Ranks& excluded, const char* text) {
    const auto stay = detail::surviving_ranks(1, 3, excluded);
    REQUIRE(!stay);
    CHECK(stay.error().code == Errc::invalid_argument);
    CHECK(mentions(stay.error().what, text));
  };
  wrong({0, 3}, "no rank 3 to exclude (ranks are 0 to 2)");
  wrong({-1}, "no rank -1");
  wrong({0, 1, 2}, "rank 1 excludes itself");
}

TEST_CASE("some ranks of a bootstrap that is well form one of their own, again and again") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  std::array<std::array<std::byte, 16>, 4> first, second;
  all_ok(on_ranks(4, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 4, {20, nullptr}));
    if (rank != 1) {
      CCL_TRY(auto rest, works_without(*b, rank == 0 ? Ranks{1} : Ranks{1, 1}));
      EXPECT(rest->ranks() == 3 && rest->rank() == (rank == 0 ? 0 : rank - 1));
      EXPECT(rest->place(0).pid == ::getpid() && rest->place(2).rank == 2);
      first[size_t(rank)] = rest->secret();
      CCL_TRY(auto again, works_without(*b, {1}));
      second[size_t(rank)] = again->secret();
      CCL_CHECK(again->finalize());
      // The result supports every operation of a bootstrap.
      CCL_TRY(auto half, rest->split(rest->rank() % 2, 0));
      CCL_CHECK(gather_works(*half));
      CCL_CHECK(half->finalize());
      if (rank != 3) {
        CCL_TRY(auto two, works_without(*rest, {2}));
        CCL_CHECK(two->finalize());
      }
      CCL_CHECK(gather_works(*rest));
      CCL_CHECK(rest->finalize());
    }
    // The parent is as it was, also for the one that had no part.
    CCL_CHECK(gather_works(*b));
    CCL_TRY(auto all, works_without(*b, {}));
    CCL_CHECK(all->finalize());
    CCL_TRY(auto alone, works_without(*b, rank == 0 ? Ranks{1, 2, 3} : Ranks{0}));
    CCL_CHECK(alone->finalize());
    CCL_CHECK(b->barrier());
    return b->finalize();
  }));
  CHECK((first[0] == first[2] && first[0] == first[3]));
  CHECK((second[0] == second[2] && second[0] == second[3]));
  CHECK(first[0] != second[0]);
}

TEST_CASE("ranks that exclude each other form bootstraps of their own at the same time") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  all_ok(on_ranks(6, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 6, {20, nullptr}));
    const bool even = rank % 2 == 0;
    CCL_TRY(auto rest, works_without(*b, even ? Ranks{1, 3, 5} : Ranks{4, 2, 0}));
    EXPECT(rest->ranks() == 3 && rest->rank() == rank / 2);
    CCL_CHECK(rest->finalize());
    return b->finalize();
  }));
}

TEST_CASE("those who stay go on after an abort, one of them before the others know of it") {
  const Interfaces lo;
  const auto ids = some_ids(2);
  std::atomic<int> stand{0}, done{0};
  all_ok(on_ranks(5, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 5, {20, nullptr}));
    (void)b->barrier();  // the barrier can report the end of the first
    if (rank == 3) {
      b->abort({Errc::aborted, "for a test", -1, 3});
      b.reset();  // the rank leaves
    } else {
      if (rank != 4) EXPECT(!b->barrier());
      sleep_ms(rank == 1 ? 300 : 0);
      CCL_TRY(auto rest, works_without(*b, {3}));
      EXPECT(rest->ranks() == 4);
      ++stand;
      if (rank == 0) {
        wait_for(stand, 4);
        rest->abort({Errc::aborted, "another one", -1, 0});
      } else {
        while (rest->barrier()) {
        }
        CCL_TRY(auto fewer, works_without(*rest, {0}));
        EXPECT(fewer->ranks() == 3);
        CCL_CHECK(fewer->finalize());
      }
      ++done;
      wait_for(done, 4);
    }
    return {};
  }));
}

TEST_CASE("ranks that exclude others than the rest get an error, and may try again") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  const int odd = GENERATE(0, 1, 2);
  std::atomic<int> done{0};
  const auto errors = on_ranks(4, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 4, {20, nullptr}));
    if (rank == 3) {
      wait_for(done, 3);
      return {};
    }
    const auto first = b->shrink(rank == odd ? Ranks{} : Ranks{3}, {20, nullptr});
    CCL_TRY(auto rest, works_without(*b, {3}));
    CCL_CHECK(rest->finalize());
    ++done;
    wait_for(done, 3);
    if (!first) return fail(first.error());
    return {};
  });
  for (const int r : {0, 1, 2}) {
    INFO(errors[size_t(r)].message());
    CHECK(errors[size_t(r)].code == Errc::mismatch);
    CHECK(mentions(errors[size_t(r)].what, "excludes rank 3"));
    CHECK(mentions(errors[size_t(r)].what, "excludes no rank"));
  }
}

TEST_CASE("a rank that does not come is named, and may come later") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  const int late = GENERATE(0, 2, 4);
  std::atomic<int> missed{0};
  const auto errors = on_ranks(5, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 5, {20, nullptr}));
    Result<std::unique_ptr<detail::Bootstrap>> first = fail(Errc::ok, "");
    if (rank == 1) {
      wait_for(missed, 3);
    } else {
      if (rank == late) wait_for(missed, 3);
      if (rank != late) {
        first = b->shrink(Ranks{1}, {1, nullptr});
        ++missed;
      }
      // A rank that calls then gets the others' error, and all try again.
      auto rest = works_without(*b, {1});
      if (!rest && rank == late) rest = works_without(*b, {1});
      if (!rest) return fail(rest.error());
      CCL_CHECK((*rest)->finalize());
    }
    CCL_CHECK(gather_works(*b));  // nothing of this harmed the parent
    CCL_CHECK(b->finalize());
    if (!first) return fail(first.error());
    return {};
  });
  for (const int r : {0, 2, 3, 4}) {
    INFO(errors[size_t(r)].message());
    if (r == late) {
      CHECK(errors[size_t(r)].code == Errc::ok);
      continue;
    }
    CHECK(errors[size_t(r)].code == Errc::timed_out);
    CHECK(errors[size_t(r)].peer == late);
    CHECK(mentions(errors[size_t(r)].what, ("nothing from rank " + std::to_string(late)).c_str()));
  }
}

TEST_CASE("a rank that cannot begin to shrink ends the others' call, and all may try again") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  const int unable = GENERATE(0, 2, 3);
  const bool early = GENERATE(true, false);  // it fails before the others call, or while they wait
  std::atomic<int> called{0}, done{0};
  const auto errors = on_ranks(4, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 4, {60, nullptr}));
    if (rank == 1) {
      wait_for(done, 3);
      return {};
    }
    Result<std::unique_ptr<detail::Bootstrap>> first = fail(Errc::ok, "");
    const auto failed = b->failed_shrinks();
    if (rank == unable) {
      if (!early) {
        wait_for(called, 2);
        sleep_ms(300);  // they wait
      }
      b->miss_shrink(Errc::out_of_memory, failed);
      b->miss_shrink(Errc::out_of_memory, failed);  // of a call that has failed: nothing
    } else {
      if (early) sleep_ms(300);
      ++called;
      first = b->shrink(Ranks{1}, {60, nullptr});
    }
    // The first call of a rank that comes late may be the second one of the others.
    auto rest = first ? std::move(first) : b->shrink(Ranks{1}, {60, nullptr});
    if (!rest) return fail(rest.error());
    CCL_CHECK(gather_works(**rest));
    CCL_CHECK((*rest)->finalize());
    ++done;
    wait_for(done, 3);
    if (first || rank == unable) return {};
    return fail(first.error());
  });
  int failed = 0;
  for (const int r : {0, 2, 3}) {
    INFO("rank " << unable << " fails; rank " << r << ": " << errors[size_t(r)].message());
    if (errors[size_t(r)].code == Errc::ok && (r == unable || early)) continue;
    CHECK(errors[size_t(r)].code == Errc::out_of_memory);
    CHECK(errors[size_t(r)].peer == unable);
    ++failed;
  }
  CHECK((early || failed == 2));
}

TEST_CASE("a rank that leaves while the others shrink is named, and they try without it") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  const int leaves = GENERATE(0, 1, 3);
  std::atomic<int> done{0};
  const auto errors = on_ranks(4, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 4, {20, nullptr}));
    (void)b->barrier();  // the barrier can report the end of the first
    if (rank == 2) {
      b->abort({Errc::aborted, "for a test", -1, 2});
      wait_for(done, 2);
      return {};
    }
    if (rank == leaves) {
      sleep_ms(100);
      return {};
    }
    const auto first = b->shrink(Ranks{2}, {20, nullptr});
    CCL_TRY(auto rest, works_without(*b, {2, leaves}));
    EXPECT(rest->ranks() == 2);
    CCL_CHECK(rest->finalize());
    ++done;
    wait_for(done, 2);
    if (!first) return fail(first.error());
    return {};
  });
  for (const int r : {0, 1, 3}) {
    if (r == leaves) continue;
    INFO(errors[size_t(r)].message());
    CHECK(errors[size_t(r)].code == Errc::peer_lost);
    CHECK(errors[size_t(r)].peer == leaves);
  }
}

TEST_CASE("an aborted shrink ends on all ranks that are in it") {
  const Interfaces lo;
  const auto ids = some_ids(1);
  std::atomic<int> done{0};
  const auto errors = on_ranks(4, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, 4, {20, nullptr}));
    CCL_CHECK(b->barrier());
    const auto work = [&]() -> Result<void> {
      if (rank == 2) {  // is waited for
        wait_for(done, 3);
        return {};
      }
      std::thread stops{[&] {
        while (rank == 0 && done == 0) {
          b->stop_shrink({Errc::aborted, "for a test", -1, 0});
          sleep_ms(20);
        }
      }};
      const auto made = b->shrink(Ranks{}, {20, nullptr});
      ++done;
      stops.join();
      wait_for(done, 3);
      if (!made) return fail(made.error());
      return {};
    };
    const auto result = work();
    CCL_CHECK(gather_works(*b));
    CCL_CHECK(b->finalize());
    return result;
  });
  for (const int r : {0, 1, 3}) {
    INFO(errors[size_t(r)].message());
    CHECK(errors[size_t(r)].code == Errc::aborted);
    CHECK(errors[size_t(r)].peer == 0);
  }
}
