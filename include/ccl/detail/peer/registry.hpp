#pragma once

#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/peer/work.hpp>

namespace ccl::detail {

/// Launch over a peer view, or several if the message is longer than the scratch.
template <class Op, class Algo, class Proto, class R>
struct PeerKernels {
  static inline int (*launch)(const PeerWork<R>&, const DeviceTarget&) = nullptr;
  /// Returns the maximum elements of a launch. 0 if the scratch has no tile for each rank.
  static inline Index (*max_elements)(const PeerWork<R>&) = nullptr;
  /// Returns the packets of each half of the scratch that the call takes in the kernel of a group.
  /// 0 if the call needs several launches or a kernel of its own.
  static inline Index (*packets_in_group)(const PeerWork<R>&) = nullptr;
};

/// Returns the bytes that one rank moves in a launch over a peer view.
template <class R>
Index message_bytes(const PeerWork<R>& work) {
  const Layout& l = work.layout;
  const Index shares = l.split || (l.in_stride == 0 && l.out_stride == 0) ? 1 : work.peers.ranks;
  return l.count * shares * Index{sizeof(typename R::Type)};
}

}  // namespace ccl::detail
