#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "base/io/fd.hpp"
#include "net/socket.hpp"

namespace ccl::detail::net {

/// Caller that has not proved the secret yet, as the limits see it.
struct CallerRecord {
  std::string source;              // address without its port; callers of Unix sockets share one
  const void* listener = nullptr;  // only compared
  Clock::time_point since{};
  bool has_spoken = false;  // it has sent a correct prefix
  std::function<void()> evict = {};
};

/// Limits of the callers of a process that have not proved the secret. The engine's mutex guards
/// it.
///
/// - `max` callers in the process, and half of it for one listener and for one source.
/// - A caller has `grace` to prove itself. After it, a new caller may take its place: that of the
///   source which holds most places, of a silent one before one that has spoken, of the oldest.
/// - If no caller is that old, the new one is turned away. It gets the busy notice and tries again,
///   so strangers delay the ranks of the job and never push them out.
class CallerTable {
 public:
  using Entry = std::list<CallerRecord>::iterator;
  static constexpr auto grace = std::chrono::milliseconds{500};

  /// Table of the process.
  static CallerTable& get();
  /// Without `max`, the process's limit of descriptors gives it: see `max_callers`.
  explicit CallerTable(std::optional<std::size_t> max = {}) : fixed_max_(max) {}

  /// Returns the place of a new caller, or nothing if it must be turned away. May call `evict` of
  /// another caller, which must `leave`.
  std::optional<Entry> admit(const Address& from, const void* listener, Clock::time_point now,
                             std::function<void()> evict);
  void leave(Entry place) { places_.erase(place); }
  /// Evicts one caller that is older than `grace`, to free its descriptor. False if there is none.
  bool evict_one(Clock::time_point now);
  std::size_t size() const { return places_.size(); }

  /// Keeps a descriptor in reserve while there are listeners. With it, a process that has no other
  /// can accept callers to turn them away.
  void add_listener();
  void remove_listener();
  /// Turns one caller away with the reserved descriptor. False if the reserve is in use elsewhere.
  bool turn_away(int listener);

 private:
  struct Shares;
  std::size_t max() const;
  std::optional<Entry> victim(const Shares& shares, const CallerRecord* newcomer,
                              Clock::time_point now);

  std::optional<std::size_t> fixed_max_;
  std::list<CallerRecord> places_;  // oldest first
  int listeners_ = 0;
  Fd reserve_;
};

/// Limit for a process that may open `descriptors` files: a quarter of them, from 16 to 1024.
std::size_t max_callers(std::size_t descriptors);

/// Tells a caller that it should try again, as there are too many. Does not block.
void send_busy(int fd);
/// True if `bytes` begin with the busy notice.
bool is_busy(std::span<const std::byte> bytes);

}  // namespace ccl::detail::net
