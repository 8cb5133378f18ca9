#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/copy/bodies.hpp>
#include <ccl/detail/copy/registry.hpp>
#include <ccl/detail/exec/device_shape.cuh>

namespace ccl::detail {

template <class Algo>
struct RegisteredKernels<CopyKernels<Algo>> {
  using Kernels = CopyKernels<Algo>;
  using Movers = BlockLanes<512>;
  /// Enough blocks to move data faster than NVLink; measured on H200.
  static constexpr int max_blocks = 64;

  static int sync(const CopySync& work, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      return CudaExecutor::launch<WarpLanes, CopySyncBody>(work, {1, 1, nullptr}, target.stream);
    });
  }
  static int runs(const CopyRuns& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      CopyRuns work = how;
      Index bytes = 0;
      for (int r = 0; r < work.count; ++r) bytes += work.run[r].bytes;
      work.channels = blocks_for(bytes, target);
      return CudaExecutor::launch<Movers, CopyRunsBody>(
          work, {work.channels, work.channels, nullptr}, target.stream);
    });
  }
  static int blocks_for(Index bytes, const DeviceTarget& target) {
    const Index worth = div_up<Index>(bytes, Index{64} << 10);
    return int(max_of<Index>(1, min_of<Index>(worth, min_of(max_blocks, target.max_blocks))));
  }
  static int load(int device) {
    return on_device(device, [] {
      const cudaError_t e = CudaExecutor::load<WarpLanes, CopySyncBody>();
      return e != cudaSuccess ? e : CudaExecutor::load<Movers, CopyRunsBody>();
    });
  }
  static inline const bool once = [] {
    Kernels::sync = &sync;
    Kernels::runs = &runs;
    Kernels::load = &load;
    return true;
  }();
};

template <class Op, class Algo, class Proto, class R>
struct RegisteredKernels<CopyReduceKernels<Op, Algo, Proto, R>> {
  using Lanes = BlockLanes<512>;

  static int launch(const CopyReduction<R>& how, const DeviceTarget& target) {
    return on_device(target.device, [&] {
      CopyReduction<R> work = how;
      const Index bytes = work.count * Index{sizeof(typename R::Type)};
      work.channels = RegisteredKernels<CopyKernels<Algo>>::blocks_for(bytes, target);
      Word bits = 0;
      for (int r = 0; r < work.ranks; ++r) {
        bits |= reinterpret_cast<cuda::std::uintptr_t>(work.piece[r]);
      }
      bits |= reinterpret_cast<cuda::std::uintptr_t>(work.output) |
              reinterpret_cast<cuda::std::uintptr_t>(work.also);
      const CudaShape shape{work.channels, work.channels, nullptr};
      if (bits % 16 == 0) {
        return CudaExecutor::launch<Lanes, CopyReduceBody<R, true>>(work, shape, target.stream);
      }
      return CudaExecutor::launch<Lanes, CopyReduceBody<R, false>>(work, shape, target.stream);
    });
  }
  static int load(int device) {
    return on_device(device, [] {
      cudaError_t e = CudaExecutor::load_alone<R>();
      if (e == cudaSuccess) e = CudaExecutor::load<Lanes, CopyReduceBody<R, true>>();
      return e != cudaSuccess ? e : CudaExecutor::load<Lanes, CopyReduceBody<R, false>>();
    });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    CopyReduceKernels<Op, Algo, Proto, R>::launch = &launch;
    loader.next = ComposedKernels<Op, Algo, Proto>::first;
    ComposedKernels<Op, Algo, Proto>::first = &loader;
    return true;
  }();
};

}  // namespace ccl::detail
