// 64 ranks of a host, each a process, whose limit on descriptors or on addresses is too small, or
// of which one cannot have an allocation. Every process ends by itself: by an error, or with the
// right result.
//
//   ALLOCATIONS=500 ccl.test.comm.communicator_limits "one rank of 64*"    so many places
#include <ccl/comm/unique_id.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/job.hpp"
#include "support/processes.hpp"
#include "support/replaced_new.hpp"
#include <sys/resource.h>

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 64;
#if defined(CCL_TEST_LONG)
constexpr double creation_s = 10;
#else
constexpr double creation_s = 2;  // of which a rank without means to say why costs the others all
#endif
constexpr double call_s = 10, ends_within_s = 120;

struct Outcome {
  int code = -1;                      // 0: success
  bool escaped = false;               // an exception has left a function that returns an error
  long created = 0, allocations = 0;  // with the creation, and in all
  char what[300] = {};
};
struct Board {
  UniqueId id;
  std::atomic<bool> has_id{false}, ended{false};
  Outcome of[ranks];
};

/// Addresses that this process has, in bytes.
rlim_t addresses() {
  std::ifstream status{"/proc/self/statm"};
  rlim_t pages = 0;
  status >> pages;
  return pages * rlim_t(::sysconf(_SC_PAGESIZE));
}

struct Limit {
  decltype(RLIMIT_NOFILE) of;
  rlim_t at;  // descriptors, or bytes of addresses beside those that the program has when it begins
  void set() const {
    const rlim_t limit = of == RLIMIT_AS ? addresses() + at : at;
    const rlimit both{limit, limit};
    if (::setrlimit(of, &both) != 0) std::abort();
  }
};

std::atomic<long> allocations{0};  // of this process
long failing = 0;                  // which of them fails, counted from 1; 0: none
bool all_further = false;          // and those after it
bool may_allocate() {
  const long now = allocations.fetch_add(1, std::memory_order_relaxed) + 1;
  return failing == 0 || (all_further ? now < failing : now != failing);
}

/// The same job with counted allocations, of which one may fail.
Outcome run_counted(const UniqueId& id, int rank) {
  Outcome outcome;
  std::vector<int> data(10'001, rank + 1);
  const auto work = [&]() -> Result<void> {
    Config config;
    config.init_timeout_s = creation_s;
    config.timeout_s = call_s;
    CCL_TRY(const auto comm, Communicator::create(id, rank, ranks, config));
    CCL_TRY(const auto call, Job::Call::create(comm));
    outcome.created = allocations;
    for (int n = 0; n < 2; ++n) CCL_CHECK(call(data.data(), data.data(), Index(data.size())));
    return comm.finalize();
  };
  allocation_hook = may_allocate;
  try {
    const Result<void> done = work();
    allocation_hook = nullptr;
    outcome.code = done ? 0 : int(done.error().code);
    if (!done) std::strncpy(outcome.what, done.error().what.c_str(), sizeof outcome.what - 1);
  } catch (const std::bad_alloc&) {
    allocation_hook = nullptr;
    outcome.code = int(Errc::out_of_memory);
    outcome.escaped = true;
  }
  outcome.allocations = allocations;
  return outcome;
}

Outcome run_rank(const UniqueId& id, int rank) {
  Outcome outcome;
  const auto work = [&]() -> Result<void> {
    CCL_TRY(auto job, Job::create(id, rank, ranks, creation_s, call_s));
    CCL_CHECK(job.step());
    return job.finalize();
  };
  try {
    const Result<void> done = work();
    outcome.code = done ? 0 : int(done.error().code);
    if (!done) std::strncpy(outcome.what, done.error().what.c_str(), sizeof outcome.what - 1);
  } catch (const std::bad_alloc&) {  // in the test's own vector of data
    outcome.code = int(Errc::out_of_memory);
  }
  return outcome;
}

/// Runs all ranks by `rank_main`. Returns the number of ranks of each outcome.
template <class Main>
std::map<std::string, int> run_all(Board& board, const Main& rank_main) {
  const std::vector<pid_t> maker{start_process([&] {
    const auto id = create_unique_id();
    if (!id) return 1;
    board.id = *id;
    board.has_id = true;
    return wait_until([&] { return board.ended.load(); }, 2 * ends_within_s) ? 0 : 1;
  })};
  REQUIRE(wait_until([&] { return board.has_id.load(); }, 30));
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&, r] {
      board.of[r] = rank_main(r);
      return 0;
    }));
  }
  CHECK(reap(pids, ends_within_s));  // no rank has crashed, and none hangs
  board.ended = true;
  CHECK(reap(maker, 10));
  std::map<std::string, int> outcomes;
  for (const Outcome& one : board.of) {
    CHECK(one.code >= 0);
    INFO(one.what);
    CHECK(one.code != int(Errc::internal));
    CHECK_FALSE(one.escaped);
    ++outcomes[one.code == 0 ? "success" : std::string{name(Errc(one.code))}];
  }
  return outcomes;
}

std::string text_of(const std::map<std::string, int>& outcomes) {
  std::string list;
  for (const auto& [what, count] : outcomes) list += " " + std::to_string(count) + " " + what;
  return list;
}

/// The first `limited` ranks have the limit.
void try_limit(const char* unit, rlim_t scale, const Limit& limit, int limited) {
  const auto begin = Clock::now();
  const Shared<Board> board;
  const auto outcomes = run_all(*board, [&](int rank) {
    if (rank < limited) limit.set();
    return run_rank(board->id, rank);
  });
  std::printf("%4llu %s, %d ranks limited, %.1f s:%s\n",
              static_cast<unsigned long long>(limit.at / scale), unit, limited,
              seconds(Clock::now() - begin), text_of(outcomes).c_str());
}

/// Fails allocation `at` of `rank`, or it and all further ones. Returns the outcome of that rank in
/// a job where `at` is 0.
Outcome fail_allocation(int rank, long at, bool all, double& slowest_s,
                        std::map<std::string, int>& ends) {
  const auto begin = Clock::now();
  const Shared<Board> board;
  INFO("allocation " << at << " of rank " << rank << (all ? ", and all further ones" : ""));
  const auto outcomes = run_all(*board, [&](int r) {
    if (r == rank) failing = at, all_further = all;
    return run_counted(board->id, r);
  });
  slowest_s = std::max(slowest_s, seconds(Clock::now() - begin));
  for (const auto& [what, count] : outcomes) ends[what] += count;
  return board->of[rank];
}

#if defined(CCL_TEST_LONG)
const std::vector<rlim_t> descriptors{3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 128};
const std::vector<rlim_t> mebibytes{0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512};
const std::vector<int> limited_ranks{1, ranks};
constexpr long usual_places = 200;
#else
const std::vector<rlim_t> descriptors{8, 20};
const std::vector<rlim_t> mebibytes{4, 32};
const std::vector<int> limited_ranks{ranks};
constexpr long usual_places = 4;
#endif

}  // namespace

TEST_CASE("ranks with too few descriptors end by an error, or succeed") {
  for (const int limited : limited_ranks) {
    for (const rlim_t n : descriptors) try_limit("descriptors", 1, {RLIMIT_NOFILE, n}, limited);
  }
}

TEST_CASE("ranks with too few addresses end by an error, or succeed") {
  for (const int limited : limited_ranks) {
    for (const rlim_t n : mebibytes) try_limit("MiB", 1 << 20, {RLIMIT_AS, n << 20}, limited);
  }
}

TEST_CASE("one rank of 64 that cannot have an allocation ends by an error, and so do the others") {
  const char* const text = std::getenv("ALLOCATIONS");
  const long places = text == nullptr ? usual_places : std::atol(text);
  constexpr int victims[] = {0, 1, 37, ranks - 1};
  for (std::size_t v = 0; v < std::size(victims); ++v) {
    std::map<std::string, int> none, ends;
    double first_s = 0, slowest_s = 0;
    const Outcome plain = fail_allocation(victims[v], 0, false, first_s, none);
    REQUIRE(none["success"] == ranks);
    // As many of the creation as of the calls and the end, which have fewer.
    const long each = (places / 2 + long(std::size(victims)) - 1) / long(std::size(victims));
    const long until[] = {0, plain.created, plain.allocations};
    long here = 0;
    for (int part = 0; part < 2; ++part) {
      const long all = until[part + 1] - until[part], tried = std::min(each, all);
      for (long n = 0; n < tried; ++n, ++here) {
        const long at = until[part] + 1 + n * all / tried;
        fail_allocation(victims[v], at, n % 4 == 3, slowest_s, ends);
      }
    }
    std::printf(
        "rank %d: %ld of %ld allocations (%ld until it is created), slowest job %.1f s:%s\n",
        victims[v], here, plain.allocations, plain.created, slowest_s, text_of(ends).c_str());
  }
}
