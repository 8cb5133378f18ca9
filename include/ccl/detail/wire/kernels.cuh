#pragma once

#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/wire/context.hpp>
#include <ccl/detail/wire/registry.hpp>

namespace ccl::detail {

template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<WireKernels<Op, Algo, Proto, R>> {
  template <int Align, bool Proxied>
  using Body = WireBody<Op, Algo, Proto, Align, R, Proxied>;
  using Group = LanesOf<Proto>;

  static int launch(const WireWork<R>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      WireWork<R> work = how;
      const Index bytes = message_bytes(work);
      return with_alignment<R>(alignment(work), [&]<int Align>(Aligned<Align>) {
        if constexpr (Align == 16) {
          if (!work.proxied) return launch_body<Group, Body<16, false>>(work, bytes, target);
        }
        return launch_body<Group, Body<Align, true>>(work, bytes, target);
      });
    });
  }
  static int load(int device) {
    return on_device(device, [] {
      const cudaError_t e = CudaExecutor::load<Group, Body<16, false>>();
      if (e != cudaSuccess) return e;
      return for_alignments<R>(
          []<int Align>(Aligned<Align>) { return CudaExecutor::load<Group, Body<Align, true>>(); });
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
