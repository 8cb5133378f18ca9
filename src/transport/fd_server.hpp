#pragma once

#include <ccl/transport/transport.hpp>

#include <string>

#include "base/io/fd.hpp"
#include "transport/proof.hpp"
#include <sys/socket.h>
#include <sys/un.h>

namespace ccl::detail {

// Memory has no name that others could open. Its file descriptor is sent over a Unix socket to a
// process that proves to be the recipient. A thread and a socket exist while there is an offer, so
// both ends of an edge may connect in any order.

/// Address of a Unix socket: abstract, chosen by the kernel, and gone with the socket.
struct UnixName {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

/// Returns why two ranks of one host cannot give each other memory; empty if they can.
std::string no_common_memory(const PeerInfo& a, const PeerInfo& b);

/// Offer of an fd; ends with this object, if the fd was not fetched.
class FdOffer {
 public:
  FdOffer() = default;
  /// Keeps `fd` until a process has proved `proof`; `shape` is sent with it.
  static Result<FdOffer> make(const Proof& proof, const WireShape& shape, Fd fd);
  FdOffer(FdOffer&& other) noexcept { *this = std::move(other); }
  FdOffer& operator=(FdOffer&& other) noexcept {
    std::swap(proof_, other.proof_);
    std::swap(name_, other.name_);
    std::swap(open_, other.open_);
    return *this;
  }
  ~FdOffer();
  /// Address at which to fetch it.
  const UnixName& name() const { return name_; }

 private:
  Proof proof_{};
  UnixName name_;
  bool open_ = false;
};

/// Fetches the fd that the other end of `edge` offers at `from`, within the context's deadline.
/// Refuses an fd of another user or for another shape.
Result<Fd> fetch_fd(const TransportContext& context, const Edge& edge, const char* transport,
                    const UnixName& from, const Proof& proof);

}  // namespace ccl::detail
