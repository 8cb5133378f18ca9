#pragma once

#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/wire/work.hpp>

namespace ccl::detail {

template <class R>
using WireLaunch = int (*)(const WireWork<R>&, const DeviceTarget&);
/// Launch over wires.
template <class Op, class Algo, class Proto, class R>
struct WireKernels {
  static inline WireLaunch<R> launch = nullptr;
};

/// Returns the bytes that one rank moves in a launch over wires.
template <class R>
Index message_bytes(const WireWork<R>& work) {
  const Layout& l = work.layout;
  const Index shares = l.split || (l.in_stride == 0 && l.out_stride == 0) ? 1 : work.ranks;
  return l.count * shares * Index{sizeof(typename R::Type)};
}

}  // namespace ccl::detail
