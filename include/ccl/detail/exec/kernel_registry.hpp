#pragma once

#include <ccl/detail/exec/launch_share.hpp>
#include <ccl/types/word.hpp>

#include <type_traits>

struct CUstream_st;  // of CUDA: cudaStream_t points to it

namespace ccl::detail {

/// Destination of a launch. At most `max_blocks` blocks fit beside other kernels that may run.
struct DeviceTarget {
  int device = 0;
  CUstream_st* stream = nullptr;
  int max_blocks = 1;
  LaunchShare* share = nullptr;  // counts launches that may begin early; null: they may not
  Index channel_bytes = 0;       // see `Plan`
};

// The registries <folder>/registry.hpp hold pointers to the kernels of a program. <ccl/ccl.cuh>
// sets them before main, for each composition that CUDA code instantiates; others stay null. The
// functions return a cudaError_t.

/// True if the program includes <ccl/ccl.cuh>. A shared runtime reads it, so it is always visible.
[[gnu::visibility("default")]] inline bool program_has_device_code = false;

/// True if the program includes <ccl/nvls.cuh>.
[[gnu::visibility("default")]] inline bool program_has_switch_code = false;

/// Launch of one rank alone: its data through the reduction's prologue and epilogue.
template <class R>
struct AloneKernels {
  static inline int (*launch)(const R&, const void* input, void* output, Index count,
                              const DeviceTarget&) = nullptr;
};

/// Algorithm whose kernels run in place of those of `Algo`, which differs only in its positions.
template <class Algo>
struct OnGpuLanes {
  using Type = Algo;
};
template <class Algo>
  requires requires { typename Algo::OnGpus; }
struct OnGpuLanes<Algo> {
  using Type = typename Algo::OnGpus;
};
template <class Algo>
using on_gpu_lanes = typename OnGpuLanes<Algo>::Type;

/// List of functions that load all kernels that a composition may launch. They run at its creation,
/// because loading may block while kernels run that wait for this rank.
struct KernelLoader {
  int (*load)(int device);
  KernelLoader* next;
};
template <class Op, class Algo, class Proto>
struct ComposedKernels {
  static inline KernelLoader* first = nullptr;
};

/// Instantiates the code that sets `Kernels`, in CUDA code that includes <ccl/ccl.cuh>. Argument
/// lookup finds that function there. Both definitions of a template that calls this do the same, so
/// the linker may keep either.
template <class Kernels>
void register_kernels() {
  if constexpr (requires { register_device_code(std::type_identity<Kernels>{}); }) {
    register_device_code(std::type_identity<Kernels>{});
  }
}

}  // namespace ccl::detail
