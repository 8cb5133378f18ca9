#pragma once

// What the kernels of ccl use of CUDA C++, for a host compiler: their threads are played lanes.
#include <cuda_runtime_api.h>

#include <bit>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "support/played/lanes.hpp"
#include "support/played/streams.hpp"

#undef __global__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__

/// Number of lanes of a warp. A GPU has 32. Fewer play the same code with more ranks.
#ifndef CCL_PLAYED_WARP
#  define CCL_PLAYED_WARP 32
#endif

namespace ccl::test::played {
/// In the place of CUDA's variables, of the lane that runs: only `x`, which ccl's kernels use.
template <unsigned (*Value)()>
struct Coordinate {
  struct {
    operator unsigned() const { return Value(); }
  } x;
};
/// Kernels that were loaded. A GPU loads another one at its first launch, and waits for kernels
/// that run.
class LoadedKernels {
 public:
  static LoadedKernels& instance() {
    static LoadedKernels one;
    return one;
  }
  void load(const void* kernel) {
    const std::lock_guard lock{mutex_};
    all_.insert(kernel);
  }
  void launch(const void* kernel) {
    const std::lock_guard lock{mutex_};
    late_ += all_.insert(kernel).second;
  }
  /// Number of kernels that their first launch has loaded.
  int late() {
    const std::lock_guard lock{mutex_};
    return late_;
  }

 private:
  std::mutex mutex_;
  std::set<const void*> all_;
  int late_ = 0;
};
inline std::atomic<int> clustered_launches{0};  // with thread block clusters
constexpr unsigned warp_width = CCL_PLAYED_WARP;
inline Team& warp() {
  return team(warp_width);
}
inline Team& block_team() {
  return team(this_lane->block.lanes());
}
template <class T>
T shuffle(T value, int from) {
  static_assert(sizeof(T) <= sizeof(Word) && std::is_trivially_copyable_v<T>);
  Word word = 0;
  __builtin_memcpy(&word, &value, sizeof value);
  word = warp().exchange(word, this_lane->thread % warp_width, unsigned(from));
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}
}  // namespace ccl::test::played

inline constexpr ccl::test::played::Coordinate<[] { return ccl::test::played::this_lane->thread; }>
    threadIdx{};
inline constexpr ccl::test::played::Coordinate<[] {
  return ccl::test::played::this_lane->block.index();
}>
    blockIdx{};
inline constexpr ccl::test::played::Coordinate<[] {
  return ccl::test::played::this_lane->block.lanes();
}>
    blockDim{};
inline constexpr ccl::test::played::Coordinate<[] {
  return ccl::test::played::this_lane->block.blocks();
}>
    gridDim{};
inline void __syncthreads() {
  ::ccl::test::played::block_team().sync();
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return ::ccl::test::played::shuffle(value, from);
}

/// The kernels are compiled for the current device.
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* kernel) {
  ccl::test::played::LoadedKernels::instance().load(reinterpret_cast<const void*>(kernel));
  *attributes = {};
  attributes->ptxVersion = ccl::test::played::capability();
  return cudaSuccess;
}
template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  using Arguments = std::tuple<std::decay_t<Params>...>;
  ccl::test::played::LoadedKernels::instance().launch(reinterpret_cast<const void*>(kernel));
  const auto values = std::make_shared<Arguments>(std::forward<Args>(args)...);
  bool early = false;
  unsigned cluster = 1;
  for (unsigned a = 0; a < config->numAttrs; ++a) {
    const cudaLaunchAttribute& attribute = config->attrs[a];
    early = early || attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization;
    if (attribute.id == cudaLaunchAttributeClusterDimension) cluster = attribute.val.clusterDim.x;
  }
  if (cluster == 0 || config->gridDim.x % cluster != 0) return cudaErrorInvalidClusterSize;
  if (cluster > 1) ++ccl::test::played::clustered_launches;
  ccl::test::played::Kernel played{[=] { std::apply(kernel, *values); }, config->gridDim.x,
                                   config->blockDim.x};
  const auto code = ccl::test::played::launch(config->stream, std::move(played), early);
  if (code != CUDA_SUCCESS) ccl::test::played::last_error = code;
  return cudaError_t(code);
}
