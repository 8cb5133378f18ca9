#pragma once

#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/multicast/body.hpp>
#include <ccl/detail/multicast/registry.hpp>

namespace ccl::detail {

/// Kernels over multicast memory that `Multicast` reaches. One runs buffers that are aligned to 16
/// bytes, and one all others.
template <class Op, class Algo, class Proto, class R, class Multicast>
struct MulticastLauncher {
  using Group = BlockLanes<512>;
  template <int Align, class Buffers = CopiedBuffers>
  using Body = MulticastBody<Op, Algo, Proto, Multicast, Align, R, Buffers>;
  using Aligned = Body<16>;
  using Any = Body<min_align<R>>;
  using AlignedInWindows = Body<16, WindowBuffers>;
  using AnyInWindows = Body<min_align<R>, WindowBuffers>;

  static int launch(const MulticastWork<R>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      return alignment(how) == 16 ? launch_parts<Aligned>(how, target)
                                  : launch_parts<Any>(how, target);
    });
  }
  /// All ranks make the same launches, whatever the alignment of their buffers.
  template <class Launched>
  static cudaError_t launch_parts(const MulticastWork<R>& how, const DeviceTarget& target) {
    const Index most = max_elements(how);
    if (most < 1) return cudaErrorInvalidValue;
    const int blocks = target.max_blocks < how.channels ? target.max_blocks : how.channels;
    for (Index at = 0; at < how.layout.count; at += most) {
      MulticastWork<R> work = Launched::part(how, at, most);
      const Index tiles = Launched::template tiles<Group>(work);
      work.channels = work.blocks = int(tiles < blocks ? tiles : Index{blocks});
      const cudaError_t e = CudaExecutor::launch<Group, Launched>(
          work, {work.channels, work.blocks, target.share}, target.stream);
      if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
  }
  /// Makes one launch, which divides the message itself if it has to copy it.
  static int launch_in_windows(const MulticastWork<R>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      return alignment(how) == 16 ? launch_once<AlignedInWindows>(how, target)
                                  : launch_once<AnyInWindows>(how, target);
    });
  }
  template <class Launched>
  static cudaError_t launch_once(const MulticastWork<R>& how, const DeviceTarget& target) {
    MulticastWork<R> work = how;
    if (!Launched::template divide<Group>(work)) return cudaErrorInvalidValue;
    const int blocks = target.max_blocks < how.channels ? target.max_blocks : how.channels;
    const Index tiles = Launched::template tiles<Group>(work);
    work.channels = work.blocks = int(tiles < blocks ? tiles : Index{blocks});
    return CudaExecutor::launch<Group, Launched>(work, {work.channels, work.blocks, target.share},
                                                 target.stream);
  }
  static Index max_elements(const MulticastWork<R>& how) {
    return Any::template max_elements<Group>(how);
  }
  static int load(int device) {
    return on_device(device, [] {
      cudaError_t e = load_both<Aligned, Any>();
      if constexpr (BindsWindows<Op, Algo>) {
        if (e == cudaSuccess) e = load_both<AlignedInWindows, AnyInWindows>();
      }
      return e;
    });
  }
  template <class First, class Second>
  static cudaError_t load_both() {
    const cudaError_t e = CudaExecutor::load<Group, First>();
    return e != cudaSuccess ? e : CudaExecutor::load<Group, Second>();
  }
  /// Enters the kernels into a registry.
  template <class Kernels>
  static void enter() {
    Kernels::launch = &launch;
    Kernels::max_elements = &max_elements;
    if constexpr (BindsWindows<Op, Algo>) Kernels::launch_in_windows = &launch_in_windows;
  }
};

template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<MulticastKernels<Op, Algo, Proto, R>> {
  using Launcher = MulticastLauncher<Op, Algo, Proto, R, UnicastMulticast<DeviceMemory>>;
  static inline KernelLoader loader{&Launcher::load, nullptr};
  static inline const bool once = [] {
    Launcher::template enter<MulticastKernels<Op, Algo, Proto, R>>();
    loader.next = ComposedKernels<Op, Algo, Proto>::first;
    ComposedKernels<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

}  // namespace ccl::detail
