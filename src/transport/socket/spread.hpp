#pragma once

#include <ccl/types/result.hpp>

#include <string>
#include <string_view>

namespace ccl::detail {

/// Spread of a connection's large steps: `threads` helpers beside the thread that runs the
/// collective, and `each` sockets for every one of these threads.
struct SocketSpread {
  int threads = 0, each = 1;
  static constexpr int max_sockets = 64;  // of a channel, NCCL's limit

  int sockets() const { return (threads + 1) * each; }
  friend bool operator==(const SocketSpread&, const SocketSpread&) = default;
};

/// Reads CCL_SOCKET_NTHREADS and CCL_NSOCKS_PERTHREAD. A value of -2 means NCCL's numbers for the
/// vendor of the interface's device: 2 and 8 for Amazon, 4 and 1 for Google, else 0 and 1. In these
/// clouds one socket does not fill the network.
///
/// More than `max_sockets` in total reduces the sockets of each thread. `sysfs` is /sys or a
/// replacement.
Result<SocketSpread> socket_spread(std::string_view interface, const std::string& sysfs = "/sys");

/// Number of threads that move a GPU's steps without helpers: CCL_SOCKET_GPU_NTHREADS. The value -2
/// means one for two of this rank's CPUs, from 1 to 4; each polls once per millisecond for steps of
/// a graph. Over loopback 4 took half as long as one (docs/validation/tcp.md).
Result<int> socket_movers(int local_ranks);
/// Default for `allowed` CPUs among `online`, if `local_ranks` share the host. Ranks bound to a
/// part of the host are assumed to share that part in proportion to its size.
int movers_by_default(int allowed, int online, int local_ranks);

}  // namespace ccl::detail
