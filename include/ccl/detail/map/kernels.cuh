#pragma once

#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/map/registry.hpp>

namespace ccl::detail {

template <class F, class T, class U>
struct RegisteredKernels<MapKernels<F, T, U>> {
  static int launch(const F& map, const void* input, void* output, Index count,
                    const DeviceTarget& target) {
    return on_device(target.device, [&] {
      return CudaExecutor::map<F, T, U>(map, input, output, count, target.stream);
    });
  }
  static int load(int device) {
    return on_device(device, [] { return CudaExecutor::load_map<F, T, U>(); });
  }
  static inline KernelLoader loader{&load, nullptr};
  static inline const bool once = [] {
    MapKernels<F, T, U>::launch = &launch;
    loader.next = MapKernelList<F>::first;
    MapKernelList<F>::first = &loader;
    return true;
  }();
};

}  // namespace ccl::detail
