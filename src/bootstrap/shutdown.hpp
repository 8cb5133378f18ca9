#pragma once

#include <ccl/detail/base/status.hpp>
#include <ccl/detail/runtime/bootstrap.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bootstrap/members/peer_sockets.hpp"

namespace ccl::detail {

/// End of a bootstrap: failures, which all ranks receive, and the graceful end.
class Shutdown {
 public:
  /// Null `status`: its own.
  Shutdown(Bootstrap::Core& core, Status* status)
      : core_(core), status_(status == nullptr ? &own_status_ : status) {}

  Status& status() const { return *status_; }
  /// Returns the bootstrap's error, or `Errc::invalid_usage` if it has ended.
  Result<void> usable(const net::Lock&) const;
  const std::optional<Error>& failure(const net::Lock&) const { return failure_; }
  bool is_leaving(const net::Lock&) const { return leaving_; }

  // Without memory for an error, these functions close the connections in place of sending it:
  // see `cut`.
  void abort(const Error& error) noexcept;
  /// Sends `error` to all ranks while the ring forms. Returns it with this rank and its host.
  Error give_up(Error error) noexcept;
  /// See `Bootstrap::finalize`.
  Result<void> finalize(std::optional<double> limit_s = {},
                        const std::function<void()>& drain = {});
  /// Ends a bootstrap that all ranks know to be over.
  void close_gracefully();
  /// Tells all ranks that this one's process exits in order, and closes the connections. Does
  /// nothing if the bootstrap has failed, has ended or still forms.
  void depart(const net::Lock&) noexcept;
  /// True while a connection still sends what it was given last, or its other end is open.
  bool is_draining(const net::Lock&) const;
  /// Fails all ranks, because one of them needs more of `rank`, which has departed.
  void lose_departed(const net::Lock&, int rank) noexcept;
  /// Ends the bootstrap for its destructor.
  void leave() noexcept;

  /// Sends `error` to all ranks once. Then this rank fails. A thread that acts on the status may
  /// exit, so the messages go first.
  void on_error(const net::Lock&, Error error) noexcept;
  /// Fails all ranks with `Errc::mismatch` and `owner` as the peer.
  void on_mismatch(const net::Lock&, int owner, std::string what);
  /// Records that the process of `rank` exits in order, and tells the others once.
  void on_departure(const net::Lock&, int rank);
  void on_closed(const net::Lock&, const net::Conn& conn, PeerRole role, const net::Member& peer,
                 int os_code) noexcept;
  /// Sets the child of a split that not all ranks have left yet. It receives this one's failure.
  void set_forming_child(const std::shared_ptr<Bootstrap::Core>& child);

 private:
  /// Fails this rank with `code` and closes all connections, which the other ranks notice. Needs no
  /// memory.
  void cut(const net::Lock&, Errc code, int peer) noexcept;
  void close_connections(const net::Lock&) noexcept;
  Error aborted(const Error& why) const;
  void leave_now(const net::Lock&);
  void end_peer(const net::Lock&, const net::Conn& conn, PeerRole role, const net::Member& peer,
                int os_code);
  void broadcast_error(const net::Lock&, const Error& error);
  void release_waiters(const net::Lock&, Error error);
  void fail_child(const net::Lock&, Bootstrap::Core& child, const Error& error);
  void send_goodbyes(const net::Lock&);
  void send_departure(const net::Lock&, int rank);
  void close_all(const net::Lock&);

  Bootstrap::Core& core_;
  Status own_status_;
  Status* const status_;
  std::optional<Error> failure_;
  bool leaving_ = false, finalized_ = false;
  std::weak_ptr<Bootstrap::Core> forming_child_;
};

}  // namespace ccl::detail
