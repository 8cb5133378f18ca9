#pragma once

// `FakeGpus` that describe the memory at an address, as a program's own.
#include <iterator>
#include <mutex>

#include "support/gpu_ranks.hpp"
#include "support/pointer_attributes.hpp"

namespace ccl::test {

inline CUresult describe_region(unsigned count, CUpointer_attribute* what, void** to,
                                CUdeviceptr at) {
  FakeGpus& all = fake::gpus();
  const std::lock_guard lock{all.mutex};
  const auto next = all.regions.upper_bound(at);
  if (next == all.regions.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [begin, region] = *std::prev(next);
  if (at >= begin + region.bytes) return CUDA_ERROR_INVALID_VALUE;
  FakeAllocation memory;
  memory.begin = begin;
  memory.bytes = region.bytes;
  memory.on_device = at;
  memory.device = region.device;
  memory.legacy = region.fd >= 0;
  memory.number = begin;
  return answer_attributes(memory, count, what, to);
}

/// Installs GPUs whose memory may be in a `Window`. Returns their driver, which a test may change.
inline detail::CudaDriver install_gpus(int devices) {
  (void)gpus(devices);
  auto cuda = fake::driver();
  cuda.pointer_get_attributes = describe_region;
  detail::use_cuda_driver(cuda, devices);
  return cuda;
}

}  // namespace ccl::test
