#pragma once

#include <ccl/detail/exchange/counted_work.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/wire/work.hpp>

namespace ccl::detail {

/// Launch of an exchange over wires.
template <class Algo, class Proto>
struct ExchangeKernels {
  static inline int (*launch)(const ExchangeWork&, Index bytes, const DeviceTarget&) = nullptr;
  static inline int (*load)(int device) = nullptr;
};
/// Launch of an exchange over a peer view.
template <class Algo, class Proto>
struct PeerExchangeKernels {
  static inline int (*launch)(const PeerExchangeWork&, const DeviceTarget&) = nullptr;
  static inline int (*launch_wide)(const WidePeerExchangeWork&, const DeviceTarget&) = nullptr;
  /// Returns the maximum bytes of one message in a launch. 0 if the scratch is too small.
  /// `max_rings` is the `many` of a `RingLimit`.
  static inline Index (*max_bytes)(const PeerView&, int max_rings) = nullptr;
  static inline int (*load)(int device) = nullptr;
};
/// Launch of an exchange whose counts lie in memory.
template <class Algo, class Proto>
struct CountedKernels {
  static inline int (*launch)(const CountedWork&, const DeviceTarget&) = nullptr;
  /// Returns the maximum rows of each message in a launch.
  static inline int (*max_rows)(const CountedWork&) = nullptr;
  static inline int (*load)(int device) = nullptr;
};

}  // namespace ccl::detail
