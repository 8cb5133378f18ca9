#pragma once

// Ranks as processes that exit with live communicators.
#include <ccl/ccl.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/processes.hpp"

namespace ccl::test {

template <class Transport>
using SumOver = Collective<AllReduce, Ring, Simple, Transport>;
template <class Transport>
using FromRoot = Collective<Broadcast, Ring, Simple, Transport>;
template <class Transport>
using ToAll = Collective<AllToAll, Pairwise, Simple, Transport>;

inline Config on_cpu() {
  Config config;
  config.device = Config::cpu;
  return config;
}

/// An id of a process of its own, which ends with this object: what forks ranks has no thread,
/// which the thread sanitizer would take for one of theirs.
class IdElsewhere {
 public:
  IdElsewhere() {
    maker_ = start_process([&]() -> int {
      ::alarm(200);
      const auto id = create_unique_id();
      if (!id) return 1;
      board_->id = *id;
      board_->has_id = true;
      while (!board_->ended) sleep_s(0.01);
      return 0;
    });
    REQUIRE(wait_until([&] { return board_->has_id.load(); }, 60));
  }
  ~IdElsewhere() {
    board_->ended = true;
    CHECK(reap({maker_}, 60));
  }
  IdElsewhere(const IdElsewhere&) = delete;
  IdElsewhere& operator=(const IdElsewhere&) = delete;
  const UniqueId& get() const { return board_->id; }

 private:
  struct Board {
    UniqueId id;
    std::atomic<bool> has_id{false}, ended{false};
  };
  Shared<Board> board_;
  pid_t maker_ = 0;
};

/// Creates a communicator in a process of its own for each rank, and leaves it there for ever.
/// `body` returns the exit status. The processes end by `exit`, with their handles alive. Returns
/// true if each ends with 0. `except` may end in any way. No deadline is set: a call that nothing
/// ends is killed after 100 s.
template <class Body>
bool exiting(int ranks, Body body, int except = -1) {
  const IdElsewhere id;
  std::vector<pid_t> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(start_process([&]() -> int {
      ::alarm(100);
      auto made = Communicator::create(id.get(), rank, ranks, on_cpu());
      if (!made) return 90;
      auto& comm = *new Communicator{*std::move(made)};
      std::exit(body(comm));
    }));
  }
  return reap(all, 100, except < 0 ? 0 : all[std::size_t(except)]);
}

/// Texts of the ranks, in memory that all processes share.
class Words {
 public:
  void keep(int rank, const Result<void>& result) {
    const std::string text = result ? "well" : result.error().message();
    text.copy((*said_)[std::size_t(rank)].data(), 600 - 1);
  }
  std::string of(int rank) const { return (*said_)[std::size_t(rank)].data(); }

 private:
  Shared<std::array<std::array<char, 600>, 8>> said_;
};

}  // namespace ccl::test
