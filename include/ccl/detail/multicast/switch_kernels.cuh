#pragma once

#include <ccl/detail/multicast/kernels.cuh>
#include <ccl/detail/multicast/switch_memory.cuh>

namespace ccl::detail {

inline const bool has_switch_code = program_has_switch_code = true;

/// Not run on hardware. No function of ccl includes this: a program does, by <ccl/nvls.cuh>.
template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<SwitchKernels<Op, Algo, Proto, R>> {
  using Launcher = MulticastLauncher<Op, Algo, Proto, R, SwitchMulticast>;
  static inline KernelLoader loader{&Launcher::load, nullptr};
  static inline const bool once = [] {
    Launcher::template enter<SwitchKernels<Op, Algo, Proto, R>>();
    loader.next = ComposedKernels<Op, Algo, Proto>::first;
    ComposedKernels<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

}  // namespace ccl::detail
