// 64 ranks of a host, each a process, whose limit on descriptors or on addresses is too small.
// Every process ends by itself: by an error, or with the right result.
#include <ccl/comm/unique_id.hpp>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/job.hpp"
#include "support/processes.hpp"
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
  int code = -1;  // 0: success
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

/// Runs all ranks, of which the first `limited` have the limit. Returns the number of ranks of each
/// outcome.
std::map<std::string, int> run_all(const Limit& limit, int limited) {
  Shared<Board> board;
  const std::vector<pid_t> maker{start_process([&] {
    const auto id = create_unique_id();
    if (!id) return 1;
    board->id = *id;
    board->has_id = true;
    return wait_until([&] { return board->ended.load(); }, 2 * ends_within_s) ? 0 : 1;
  })};
  REQUIRE(wait_until([&] { return board->has_id.load(); }, 30));
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&, r] {
      if (r < limited) limit.set();
      board->of[r] = run_rank(board->id, r);
      return 0;
    }));
  }
  CHECK(reap(pids, ends_within_s));  // no rank has crashed, and none hangs
  board->ended = true;
  CHECK(reap(maker, 10));
  std::map<std::string, int> outcomes;
  for (const Outcome& one : board->of) {
    CHECK(one.code >= 0);
    INFO(one.what);
    CHECK(one.code != int(Errc::internal));
    ++outcomes[one.code == 0 ? "success" : std::string{name(Errc(one.code))}];
  }
  return outcomes;
}

void try_limit(const char* unit, rlim_t scale, const Limit& limit, int limited) {
  const auto begin = Clock::now();
  const auto outcomes = run_all(limit, limited);
  std::string list;
  for (const auto& [what, count] : outcomes) list += " " + std::to_string(count) + " " + what;
  std::printf("%4llu %s, %d ranks limited, %.1f s:%s\n",
              static_cast<unsigned long long>(limit.at / scale), unit, limited,
              seconds(Clock::now() - begin), list.c_str());
}

#if defined(CCL_TEST_LONG)
const std::vector<rlim_t> descriptors{3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 128};
const std::vector<rlim_t> mebibytes{0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512};
const std::vector<int> limited_ranks{1, ranks};
#else
const std::vector<rlim_t> descriptors{8, 20};
const std::vector<rlim_t> mebibytes{4, 32};
const std::vector<int> limited_ranks{ranks};
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
