#pragma once

#include <ccl/types/connection.hpp>

#include <memory>

namespace ccl::detail {

template <class Link>
struct ProxiedBody;

/// One end of an edge whose bytes a proxy moves: a ring of slots, and a listening socket that
/// accepts the sender's authenticated TCP connections. `Link` handles them; see
/// src/transport/proxied/end.hpp.
/// The sender's `connect` returns when its side works, the receiver's returns at once.
template <class Link>
class ProxiedEnd {
 public:
  static Result<ProxiedEnd> make(TransportContext& context, const Edge& edge);
  Handshake handshake() const;
  Result<Connection> connect(const Handshake& theirs);

 private:
  std::shared_ptr<ProxiedBody<Link>> body_;
};

}  // namespace ccl::detail
