#pragma once

#include <ccl/types/connection.hpp>
#include <ccl/types/result.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "connect/idle_message.hpp"

namespace ccl::detail {

class Connections;

/// Connections of a composition between pairs of ranks, which close when a pair has not used them
/// for a while. Both directions of a pair close together.
///
/// The lower rank takes its wires out of the tables and requests the close. It names the steps that
/// it has sent and received. The higher rank agrees if no call of it uses the pair and the counts
/// are those of its own wires: no message is then on its way. Otherwise the lower rank enters its
/// wires again. A call that needs the pair waits for the answer.
class IdlePairs {
 public:
  /// Pairs of `of`, which must outlive this. They close after `idle_s` seconds without a call.
  IdlePairs(Connections& of, double idle_s);
  ~IdlePairs();
  IdlePairs(const IdlePairs&) = delete;
  IdlePairs& operator=(const IdlePairs&) = delete;

  double idle_s() const { return std::chrono::duration<double>(idle_).count(); }
  int composition() const;
  /// Keeps a connection that the running call has made, until it closes.
  void keep(int peer, bool sends, Connection connection);
  /// Holds the pairs with these ranks open until `end_use`. Blocks while one of them closes. On
  /// failure the communicator has failed, and no pair is held.
  Result<void> begin_use(const std::vector<int>& from, const std::vector<int>& to);
  void end_use(const std::vector<int>& from, const std::vector<int>& to);

  // Functions of the thread that closes connections.
  /// Requests the close of all pairs that are idle, of those in which this rank is the lower one.
  void look();
  /// Handles a message of `peer`.
  void take(int peer, const IdleMessage& message);

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { open, closing };
  struct Pair {
    std::optional<Connection> in{}, out{};
    State state = State::open;
    bool in_use = false, used = false;  // by the running call; by one since the last look
    std::uint64_t requests = 0;
    Clock::time_point since{};  // latest use
    bool connected() const { return in || out; }
  };
  Pair& at(int peer) { return pairs_[std::size_t(peer)]; }
  /// Steps of all channels that this end has sent, and received.
  struct Steps {
    Word sent = 0, received = 0;
  };
  static Steps steps_of(const Pair& pair);
  Word edges_of(int peer, const Pair& pair) const;
  /// Takes the wires out of the tables, or enters them again. The caller holds the mutex.
  void hide(int peer, Pair& pair);
  void show(int peer, Pair& pair);
  /// Destroys the connections of a pair that is closing, and ends that state.
  void destroy(int peer);
  void answer(int peer, const IdleMessage& request);
  void take_answer(int peer, const IdleMessage& answer);
  void send(int peer, const IdleMessage& message);
  /// Waits for the answer of a rank with which a call must wait to reopen a pair.
  Result<void> await_answer(std::unique_lock<std::mutex>& lock, int peer);

  Connections& of_;
  const Clock::duration idle_;
  std::mutex mutex_;  // guards `pairs_`
  std::condition_variable changed_;
  std::vector<Pair> pairs_;  // by rank
};

}  // namespace ccl::detail
