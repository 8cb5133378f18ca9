#pragma once

#include <ccl/detail/base/status.hpp>
#include <ccl/types/result.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "net/secure_socket.hpp"

namespace ccl::detail {

class LateCaller;
class ProxyEngine;

/// TCP connections that a sender opens when a step first needs them. Lanes of a GPU cannot connect,
/// and its launches may be replays that the host does not see: so a task asks for a connection, and
/// a thread that all such senders of an engine share makes it. The receiver listens as long as its
/// end lives, so nothing of the peer but its network thread takes part.
class LateCalls {
 public:
  /// Makes the connection of a line. `stop` fails when the connection is not wanted any more.
  using Call = std::function<Result<net::SecureSocket>(std::size_t line, const Status* stop)>;

  /// `engines`: they are woken when a connection has been made, or has failed. The thread belongs
  /// to the first of them.
  static std::unique_ptr<LateCalls> make(std::vector<ProxyEngine*> engines, std::size_t lines,
                                         Call call);
  /// Waits for a call under way, which stops.
  ~LateCalls();
  LateCalls(const LateCalls&) = delete;
  LateCalls& operator=(const LateCalls&) = delete;

  /// Returns the connection of the line if it has been made, and forgets it; an empty socket while
  /// the thread makes it. The first such call asks for it. Fails as the call failed, or if there is
  /// no thread. Never blocks.
  Result<net::SecureSocket> open(std::size_t line);
  /// True if `open` returns more than an empty socket.
  bool contains(std::size_t line) const;

 private:
  friend class LateCaller;
  struct Shared;
  LateCalls(std::shared_ptr<LateCaller> caller, std::shared_ptr<Shared> shared);

  const std::shared_ptr<LateCaller> caller_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace ccl::detail
