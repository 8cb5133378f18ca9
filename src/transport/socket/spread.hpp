#pragma once

#include <ccl/types/result.hpp>

#include <string>
#include <string_view>

namespace ccl::detail {

/// Over what a connection's large steps are spread: `threads` helpers beside whoever runs the
/// collective, and `each` sockets for every one of these and for that one.
struct SocketSpread {
  int threads = 0, each = 1;
  static constexpr int max_sockets = 64;  // of a channel, NCCL's limit

  int sockets() const { return (threads + 1) * each; }
  friend bool operator==(const SocketSpread&, const SocketSpread&) = default;
};

/// CCL_SOCKET_NTHREADS and CCL_NSOCKS_PERTHREAD; where they are -2, NCCL's numbers for the vendor
/// of the interface's device, in whose cloud one socket does not fill the network: 2 and 8 of
/// Amazon's, 4 and 1 of Google's, else 0 and 1. Fewer sockets for each thread than asked for if all
/// were more than `max_sockets`. `sysfs`: /sys, or what stands for it.
Result<SocketSpread> socket_spread(std::string_view interface, const std::string& sysfs = "/sys");

/// Threads that move a GPU's steps, which nobody helps: CCL_SOCKET_GPU_NTHREADS. Where that is -2,
/// one for two of the CPUs that are this rank's, from 1 to 4: each looks once a millisecond
/// for what a graph posts. Over loopback 4 took half as long as one (docs/network.md).
Result<int> socket_movers(int local_ranks);
/// Of `allowed` CPUs among `online`, where `local_ranks` share the host: those bound to a part of
/// it are taken to share that part with as many ranks as it has of the host.
int movers_by_default(int allowed, int online, int local_ranks);

}  // namespace ccl::detail
