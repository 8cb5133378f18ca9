#pragma once

#include <ccl/types/result.hpp>

#include <functional>
#include <memory>

#include "net/auth.hpp"
#include "transport/proof.hpp"

namespace ccl::detail {

/// An edge's part of a listening socket. The edges of a communicator that listen at one address
/// share a socket, so that a rank with thousands of edges needs one port and one descriptor for
/// them. The first bytes of a caller's hello are the nonce of the edge that it is for.
///
/// The socket is closed with its last edge. Any thread may open and destroy one, without the
/// engine's mutex.
class EdgeListener {
 public:
  /// Handles a caller of this edge, in the engine's thread with its mutex held.
  using Take = std::function<void(net::Accepted)>;

  static Result<EdgeListener> open(const net::Address& where, const net::Secret& secret,
                                   const Nonce& nonce, Take take);
  EdgeListener(EdgeListener&&) = default;
  EdgeListener& operator=(EdgeListener&&) = delete;
  ~EdgeListener();

  /// Address to which the edge's callers connect.
  const net::Address& address() const;

 private:
  struct Shared;
  EdgeListener(std::shared_ptr<Shared> shared, const Nonce& nonce)
      : shared_{std::move(shared)}, nonce_{nonce} {}

  std::shared_ptr<Shared> shared_;  // null: moved from
  Nonce nonce_{};
};

}  // namespace ccl::detail
