#pragma once

#include <ccl/types/error.hpp>

#include <atomic>
#include <mutex>

#include "net/socket.hpp"
#include "transport/proxied/control_socket.hpp"
#include "transport/proxied/link.hpp"

namespace ccl::detail {

/// One end of a connection whose tasks agree over a control socket before it works.
struct ConnectingLink : ProxiedLink {
  enum class State { connecting, works, failed };

  explicit ConnectingLink(const char* transport) : transport_{transport} {}

  State state() const { return state_.load(std::memory_order_acquire); }
  void works() { state_.store(State::works, std::memory_order_release); }
  /// Records the first failure; with `tell_all` the communicator fails with it.
  void fail_with(Error error, bool tell_all);
  /// Error of this edge and end.
  Error annotated(Error error) const;
  Error error() const;
  /// Blocks until the connection works or has failed.
  Result<void> wait_connected(const net::Deadline& deadline);

 private:
  const char* const transport_;
  std::atomic<State> state_{State::connecting};
  mutable std::mutex mutex_;
  Error error_;
};

/// Body of the message by which an end tells the other its error.
std::vector<std::byte> refusal(const Error& error);
/// Returns the error of the other end, or fails with what does not fit in the message. An error
/// that the other end blames on this rank names no peer, because a rank cannot name itself.
Result<Error> read_refusal(const Edge& edge, std::span<const std::byte> body);

}  // namespace ccl::detail
