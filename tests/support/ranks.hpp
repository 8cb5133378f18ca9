#pragma once

// Ranks as processes. CCL_HOSTID selects the host of each rank.
#include <ccl/comm/communicator.hpp>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/processes.hpp"

namespace ccl::test {

constexpr int max_ranks = 16;
struct Board {
  char said[max_ranks][600] = {};
  UniqueId id;
  std::atomic<bool> has_id{false}, ended{false};
};

using Answer = Result<std::string>;
using Body = std::function<Answer(const Communicator&)>;

/// Returns the text of each rank: the result of `body`, or its error. `finalizes` ends with a
/// finalize. `dies` is a rank that may be killed.
inline std::vector<std::string> run(int ranks, const std::function<void(int)>& prepare,
                                    const Body& body, bool finalizes = true, int dies = -1,
                                    double timeout_s = 20) {
  Shared<Board> board;
  // In a process of its own: what forks ranks has no thread, which the thread sanitizer would take
  // for one of theirs.
  const std::vector<pid_t> maker{start_process([&] {
    const auto id = create_unique_id();
    if (!id) return 1;
    board->id = *id;
    board->has_id = true;
    return wait_until([&] { return board->ended.load(); }, 70) ? 0 : 1;
  })};
  REQUIRE(wait_until([&] { return board->has_id.load(); }, 60));
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&, r] {
      prepare(r);
      const auto work = [&]() -> Answer {
        Config config;
        config.timeout_s = timeout_s;
        CCL_TRY(const auto comm, Communicator::create(board->id, r, ranks, config));
        CCL_TRY(auto said, body(comm));
        if (finalizes) CCL_CHECK(comm.finalize());
        return said;
      };
      const Answer said = work();
      const std::string text = said ? *said : "error: " + said.error().message();
      std::strncpy(board->said[r], text.c_str(), sizeof board->said[r] - 1);
      return 0;
    }));
  }
  CHECK(reap(pids, 60, dies < 0 ? 0 : pids[std::size_t(dies)]));
  board->ended = true;
  CHECK(reap(maker, 60));
  return {board->said, board->said + ranks};
}

inline void on_host(const std::string& name) {
  ::setenv("CCL_HOSTID", name.c_str(), 1);
}

}  // namespace ccl::test
