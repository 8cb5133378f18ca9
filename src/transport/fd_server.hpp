#pragma once

#include <ccl/transport/transport.hpp>

#include "base/fd.hpp"
#include "transport/proof.hpp"
#include <sys/socket.h>
#include <sys/un.h>

namespace ccl::detail {

// Memory has no name that others could open: its file descriptor is handed over a Unix socket, to
// whoever proves that it is meant for him. A thread and a socket of this process exist while
// something is on offer, so that the ends of an edge may connect in any order.

/// A Unix socket's address: abstract, chosen by the kernel, and gone with the socket.
struct UnixName {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

/// An fd on offer: withdrawn with this object, if nobody has fetched it.
class FdOffer {
 public:
  FdOffer() = default;
  /// Keeps `fd` until someone has proved `proof`; `shape` goes with it.
  static Result<FdOffer> make(const Proof& proof, const WireShape& shape, Fd fd);
  FdOffer(FdOffer&& other) noexcept { *this = std::move(other); }
  FdOffer& operator=(FdOffer&& other) noexcept {
    std::swap(proof_, other.proof_);
    std::swap(name_, other.name_);
    std::swap(open_, other.open_);
    return *this;
  }
  ~FdOffer();
  /// Where to fetch it.
  const UnixName& name() const { return name_; }

 private:
  Proof proof_{};
  UnixName name_;
  bool open_ = false;
};

/// The fd that the other end of `edge` offers at `from`, within the context's deadline. Refuses
/// another user's, and one for another shape.
Result<Fd> fetch_fd(const TransportContext& context, const Edge& edge, const char* transport,
                    const UnixName& from, const Proof& proof);

}  // namespace ccl::detail
