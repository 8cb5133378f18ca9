#pragma once

#include <ccl/detail/base/status.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/transport/transport.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/io/mapping.hpp"
#include "net/address.hpp"
#include "net/secure_socket.hpp"
#include "transport/proxied/late_calls.hpp"

namespace ccl::detail {

/// TCP connections between the listening thread and the tasks that wait for them.
class PendingSockets {
 public:
  /// Must be called before the first socket can arrive.
  void resize(std::size_t lines) {
    std::vector<std::atomic<net::SecureSocket*>> empty(lines);
    lines_.swap(empty);
  }
  std::size_t size() const { return lines_.size(); }
  /// Returns false if there was one already.
  bool put(std::size_t line, net::SecureSocket& socket) {
    auto one = std::make_unique<net::SecureSocket>(std::move(socket));
    net::SecureSocket* none = nullptr;
    if (!lines_[line].compare_exchange_strong(none, one.get())) return false;
    (void)one.release();
    return true;
  }
  net::SecureSocket take(std::size_t line) {
    const std::unique_ptr<net::SecureSocket> one{lines_[line].exchange(nullptr)};
    return one ? std::move(*one) : net::SecureSocket{};
  }
  bool contains(std::size_t line) const { return lines_[line].load() != nullptr; }
  ~PendingSockets() {
    for (std::size_t line = 0; line < size(); ++line) (void)take(line);
  }

 private:
  std::vector<std::atomic<net::SecureSocket*>> lines_;
};

/// State that one end's owner and its proxy tasks share, on every network.
struct ProxiedLink {
  Edge edge;
  TransportContext context;
  Mapping memory;                        // the slots, unless they are elsewhere, and the counts
  std::byte* slots_elsewhere = nullptr;  // of all channels, if `prepare` has found better memory
  std::vector<Wire> wires;               // for the proxy
  bool polled = false;                   // the lanes are a GPU's: they post and cannot call
  std::atomic<bool> closing{false};      // the owner is gone
  PendingSockets arriving;               // at the receiver
  std::chrono::steady_clock::time_point deadline{};  // for the sender to connect, if a lane waits
  /// Deadline if no lane helps the proxy: those of a GPU cannot. Much later, because senders may
  /// wait one after another for a rank that has stopped, and then name that rank.
  std::chrono::steady_clock::time_point last_look{};
  /// True if this rank's senders connect when a step first needs it: see `LateCalls`. Networks that
  /// can do so set `may_open_late`.
  bool opens_late = false;
  double idle_s = 0;  // seconds without a step after which such a sender disconnects; 0: never
  static constexpr bool may_open_late = false;
  /// True if late connections cost more than others, so that none are made without a setting.
  static constexpr bool late_needs_setting = false;
  std::unique_ptr<LateCalls> late_calls{};  // at such a sender; null before it has the handshake
  /// At the receiver: its sender is one of these, and may connect at any time.
  std::atomic<bool> sender_opens_late{false};
  /// True if the sender is late. A round of the proxy's thread may have any reason, such as another
  /// task, so only one of a waiting lane applies the earlier deadline.
  bool sender_is_late() const {
    if (sender_opens_late.load(std::memory_order_relaxed)) return false;
    const bool lane_waits = idle_hook.run != nullptr;
    return std::chrono::steady_clock::now() > (lane_waits ? deadline : last_look);
  }

  /// Time at which the proxy's thread looks for a sender that has not connected.
  std::chrono::steady_clock::time_point look_for_sender() const {
    const bool any_time = sender_opens_late.load(std::memory_order_relaxed);
    return any_time ? std::chrono::steady_clock::time_point::max() : last_look;
  }
  /// Engines that drive the tasks.
  std::vector<ProxyEngine*> drivers() const { return {context.proxy}; }

  static constexpr std::size_t max_listeners = 4;
  /// Addresses at which the receiver listens; the sender's sockets are distributed among these.
  Result<std::vector<net::Address>> listeners() const {
    CCL_TRY(const auto one, net::data_interfaces(1, context.reached_at));
    return std::vector{one.front().address};
  }
  std::size_t listener_of(std::size_t line) const { return line; }
  void prepare_wires() {}
  // A network whose sockets also carry the steps of the reverse edge hides these functions.
  bool lines_go_both_ways() const { return false; }  // the sender's, for the reverse edge, too
  bool lines_come() const { return false; }          // the reverse edge makes the sender's sockets
  void lend(std::size_t, const net::SecureSocket&) {}  // lends a socket to the reverse edge
  /// Log of what moves; null: nothing is noted.
  TransferLog* transfers() const {
    return context.proxy == nullptr ? nullptr : context.proxy->transfers();
  }
  bool healthy() const { return context.status == nullptr || context.status->ok(); }
};

}  // namespace ccl::detail
