#pragma once

// A job of processes on several hosts, and an attacker beside it: network namespaces are hosts.
#include <ccl/comm/unique_id.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "net/crypto/sodium.hpp"
#include "net/rendezvous.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/job.hpp"
#include "support/lan.hpp"
#include "support/processes.hpp"
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ccl::test::hostile {

using namespace detail::net;

inline constexpr int max_ranks_here = 64, hosts = 3, attacker = hosts;

inline double now_s() {
  return seconds(test::Clock::now().time_since_epoch());
}

struct RankEnd {
  std::atomic<pid_t> pid{0};
  int code = -1, peer = -1;                            // 0: success
  int calls = 0;                                       // from `begun_at` on
  double created_at = 0, begun_at = 0, called_at = 0;  // begun: the second half of the calls
  char text[400] = {};
};
struct Ports {
  std::atomic<int> count{0};
  std::uint16_t at[128] = {};
};
struct Board {
  UniqueId id;
  std::atomic<bool> rooted{false}, in_place{false}, go{false};
  std::atomic<int> created{0};
  std::atomic<long> tries{0}, successes{0};  // of the attacker
  std::atomic<int> last_call{-1};            // of all ranks; rank 0 sets it
  char success[80] = {};                     // what the attacker has got
  double go_at = 0;
  RankEnd rank[max_ranks_here];
  Ports listening[hosts];  // of the ranks
};

using Codes = std::set<int>;
inline constexpr const char* words_of_job = "attacks";

/// One attack. Without codes, all ranks must succeed.
struct Attack {
  const char* name;
  std::function<void(Board&, int ranks)> run = {};
  int host = attacker;
  int user = 0;
  bool when_created = false;  // else before ranks call the root
  const char* encryption = "off";
  bool by_words = false;        // no secret: address and `words_of_job`
  bool no_sodium = false;       // ranks have no libsodium, and the attacker finds the words
  bool late_root_rank = false;  // rank 0 joins 1 s after the others
  const char* root_for_others = nullptr;  // address that all ranks but 0 take for the root
  bool last_is_played = false;            // the attacker is the last rank
  Codes codes = {};                       // of all real ranks, except rank 0 if the root is another
  int calls = 10;                         // at least
  long tries = 0;                         // of the attacker, during which the calls go on
};

inline std::vector<std::uint16_t> listening_ports() {
  std::vector<std::uint16_t> ports;
  std::ifstream table{"/proc/thread-self/net/tcp"};
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    unsigned port = 0, state = 0;
    if (std::sscanf(line.c_str(), " %*d: %*8x:%4x %*8x:%*4x %2x", &port, &state) == 2 &&
        state == 0x0a) {
      ports.push_back(std::uint16_t(port));
    }
  }
  return ports;
}

inline void publish_ports(Ports& to) {
  int n = 0;
  for (const auto port : listening_ports()) {
    if (n < 128) to.at[n++] = port;
  }
  to.count = n;
}

inline UniqueId with_root(const UniqueId& id, const char* address) {
  IdContent content = unpack(id).value();
  content.root = Address::parse(address).value().wire();
  return pack(content);
}

inline Result<void> run_job(Board& board, const Attack& attack, int rank, int ranks) {
  UniqueId id = board.id;
  if (rank != 0 && attack.root_for_others != nullptr) id = with_root(id, attack.root_for_others);
  // Where ranks wait in vain, they wait to the limit.
  const double limit_s = attack.codes.empty() || attack.last_is_played ? 60 : 5;
  CCL_TRY(auto job, Job::create(id, rank, ranks, limit_s, limit_s));
  board.rank[rank].created_at = now_s();
  if (rank < hosts) publish_ports(board.listening[rank]);
  ++board.created;
  const int all = ranks - int(attack.last_is_played);
  if (attack.when_created) {
    (void)wait_until([&] { return board.created == all && board.in_place; }, 60);
  }
  RankEnd& end = board.rank[rank];
  for (int n = 0; n != board.last_call + 1 || n == 0; ++n) {
    if (n == attack.calls / 2) end.begun_at = now_s();
    const bool over = n + 1 >= attack.calls && board.tries >= attack.tries;
    if (rank == 0 && over) board.last_call = n;  // the others have it when this call is over
    CCL_CHECK(job.step());
    end.called_at = now_s();
    end.calls = n + 1 - attack.calls / 2;
  }
  return job.finalize();
}

inline int run_rank(Board& board, const Lan& lan, const Attack& attack, int rank, int ranks) {
  board.rank[rank].pid = ::getpid();
  lan.enter(rank % hosts);
  hide_sodium(attack.no_sodium);
  const Environment log{"CCL_DEBUG", "NONE"};
  const Environment encryption{"CCL_ENCRYPTION", attack.encryption};
  if (rank == 0) {
    const auto id =
        attack.by_words ? unique_id_at("10.99.0.1:4713", words_of_job) : create_unique_id();
    if (!id) return 1;
    if (attack.by_words && !start_root(*id, 0)) return 3;
    board.id = *id;
    board.rooted = true;
  }
  if (!wait_until([&] { return board.go.load(); }, 60)) return 2;
  if (rank == 0 && attack.late_root_rank) sleep_s(1);
  const auto done = run_job(board, attack, rank, ranks);
  RankEnd& end = board.rank[rank];
  end.code = done ? 0 : int(done.error().code);
  end.peer = done ? -1 : done.error().peer;
  if (!done) std::snprintf(end.text, sizeof end.text, "%s", done.error().message().c_str());
  return 0;
}

struct Outcome {
  double start_s = 0, call_ms = 0;  // a call: in the second half of the calls
  std::map<std::string, int> ends;
  long tries = 0, successes = 0;
  std::string text() const {
    std::string out;
    for (const auto& [what, count] : ends) {
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
    }
    return out;
  }
};

inline void judge(const Board& board, const Attack& attack, int ranks, Outcome& outcome) {
  double created_at = 0;
  bool all_created = true;
  for (int r = 0; r < ranks - int(attack.last_is_played); ++r) {
    const RankEnd& end = board.rank[r];
    INFO(attack.name << ", rank " << r << " of " << ranks << ": " << end.text);
    REQUIRE(end.code >= 0);
    ++outcome.ends[end.code == 0 ? "success" : std::string{name(Errc(end.code))}];
    const bool apart = r == 0 && attack.root_for_others != nullptr;
    if (attack.codes.empty()) {
      CHECK(end.code == 0);
    } else if (!apart) {
      CHECK(attack.codes.contains(end.code));
    } else {
      CHECK(end.code != 0);
    }
    if (attack.last_is_played) CHECK(end.peer == ranks - 1);
    created_at = std::max(created_at, end.created_at);
    all_created = all_created && end.created_at > 0;
    if (end.calls > 0) outcome.call_ms = (end.called_at - end.begun_at) / end.calls * 1e3;
  }
  if (all_created) outcome.start_s = created_at - board.go_at - (attack.late_root_rank ? 1 : 0);
  outcome.tries = board.tries;
  outcome.successes = board.successes;
  INFO(attack.name << ", " << ranks << " ranks: " << board.success);
  CHECK((board.successes > 0) == attack.no_sodium);
}

inline Outcome play(const Lan& lan, const Attack& attack, int ranks) {
  Shared<Board> board;
  std::vector<pid_t> pids;
  const int real = ranks - int(attack.last_is_played);
  for (int r = 0; r < real; ++r) {
    pids.push_back(start_process([&, r] { return run_rank(*board, lan, attack, r, ranks); }));
  }
  REQUIRE(wait_until([&] { return board->rooted.load(); }, 60));
  pid_t enemy = 0;
  if (attack.run) {
    enemy = start_process([&] {
      lan.enter(attack.host);
      const Environment log{"CCL_DEBUG", "NONE"};
      if (attack.user != 0 && (::setgroups(0, nullptr) != 0 || ::setgid(gid_t(attack.user)) != 0 ||
                               ::setuid(uid_t(attack.user)) != 0)) {
        return 92;
      }
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // another user has to set it again
      if (attack.when_created) {
        (void)wait_until([&] { return board->created == real; }, 120);
      }
      attack.run(*board, ranks);
      return 0;
    });
    if (!attack.when_created) CHECK(wait_until([&] { return board->in_place.load(); }, 60));
  } else {
    board->in_place = true;
  }
  board->go_at = now_s();
  board->go = true;
  CHECK(reap(pids, 150));
  if (enemy != 0) {
    ::kill(enemy, SIGKILL);
    ::waitpid(enemy, nullptr, 0);
  }
  Outcome outcome;
  judge(*board, attack, ranks, outcome);
  return outcome;
}

}  // namespace ccl::test::hostile
