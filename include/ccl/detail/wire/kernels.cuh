#pragma once

#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/wire/context.hpp>
#include <ccl/detail/wire/registry.hpp>

namespace ccl::detail {

template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<WireKernels<Op, Algo, Proto, R>> {
  using Body = WireBody<Op, Algo, Proto, 16, R, false>;
  /// Kernel for buffers of any alignment, and for wires that a proxy serves.
  using AnyBody = WireBody<Op, Algo, Proto, any_align, R, true>;
  using Group = LanesOf<Proto>;
  static constexpr bool one_kernel = requires { Algo::one_kernel; };

  static int launch(const WireWork<R>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      WireWork<R> work = how;
      const Index bytes = message_bytes(work);
      if constexpr (!one_kernel) {
        if (!work.proxied && alignment(work) == 16) {
          return launch_body<Group, Body>(work, bytes, target);
        }
      }
      return launch_body<Group, AnyBody>(work, bytes, target);
    });
  }
  static int load(int device) {
    return on_device(device, [] {
      if (const cudaError_t e = CudaExecutor::load_alone<R>(); e != cudaSuccess) return e;
      if constexpr (!one_kernel) {
        if (const cudaError_t e = CudaExecutor::load<Group, Body>(); e != cudaSuccess) return e;
      }
      return CudaExecutor::load<Group, AnyBody>();
    });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    WireKernels<Op, Algo, Proto, R>::launch = &launch;
    loader.next = ComposedKernels<Op, Algo, Proto>::first;
    ComposedKernels<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

template <class R>
struct RegisteredKernels<AloneKernels<R>> {
  static int launch(const R& reduction, const void* input, void* output, Index count,
                    const DeviceTarget& target) {
    return on_device(target.device, [&] {
      return CudaExecutor::alone(reduction, input, output, count, target.stream);
    });
  }
  static inline const bool once = [] {
    AloneKernels<R>::launch = &launch;
    return true;
  }();
};

}  // namespace ccl::detail
