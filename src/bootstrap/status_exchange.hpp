#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "net/conn.hpp"
#include "net/rendezvous.hpp"

namespace ccl::detail {

/// Statuses of all ranks, exchanged by their network threads, and requests that find stopped ranks.
class StatusExchange {
 public:
  using Source = std::function<std::vector<std::byte>(std::string_view current_call)>;
  using StatusListener = std::function<void(std::span<const std::byte> status)>;
  explicit StatusExchange(Bootstrap::Core& core) : core_(core) {}

  /// Sets the function that makes the status of this rank.
  void set_source(Source source);
  /// Sets the function that takes each new status of another rank.
  void set_listener(StatusListener listener);
  std::vector<std::vector<std::byte>> rank_statuses(double limit_s);
  struct Unresponsive {
    std::optional<net::Member> rank;  // stopped or cut off
    bool asked_all = false;           // if none is found: every rank has answered
  };
  /// Looks for a rank that is stopped or cut off. Asks the neighbors and ranks in `late`, and in a
  /// small job all ranks. Releases the mutex while it asks.
  Unresponsive find_unresponsive(net::Lock& lock, const std::vector<int>& late);

  /// Handles `FrameKind::rank_status`.
  void on_status(const net::Lock&, const net::FrameHeader& h, net::Bytes payload);
  /// Ends the use of `set_source` and `set_listener`.
  void stop(const net::Lock&) { source_ = {}, listener_ = {}; }

 private:
  struct Received {
    net::Clock::time_point at;
    std::uint64_t number = 0;  // of that rank's statuses
    std::vector<std::byte> text;
  };
  std::vector<std::byte> own_status(const net::Lock& lock) const;
  void publish_status(const net::Lock&);
  void ask(net::Lock& lock, int peer);
  bool answers(net::Lock& lock, const net::Member& to);

  Bootstrap::Core& core_;
  Source source_;
  StatusListener listener_;
  std::map<int, Received> received_;  // the latest, by rank
  std::uint64_t own_statuses_ = 0;    // published
  net::Clock::time_point published_at_{};
};

}  // namespace ccl::detail
