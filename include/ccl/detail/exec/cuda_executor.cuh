#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/exec/launch_share.hpp>
#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/lanes/device_lanes.cuh>
#include <ccl/detail/numeric/reduction.hpp>

#include <cuda_runtime_api.h>

#include <atomic>

namespace ccl::detail {
/// False once a kernel was loaded whose code is for GPUs before sm_90. Such code cannot wait for
/// the previous launch, so no launch of the program may begin early.
inline std::atomic<bool> kernels_may_begin_early{true};

/// Returns the result of a call of the CUDA runtime, which the caller reports. A failure would also
/// be that of the program's next `cudaGetLastError`.
inline cudaError_t reported(cudaError_t code) {
  if (code != cudaSuccess) (void)cudaGetLastError();
  return code;
}

/// Ends a kernel. The body waits for the previous launch where it begins to access memory, but a
/// body without elements may not. The next launch waits for this one alone, so this one must not
/// end before the previous one has. Costs nothing where the body has waited. A template, so that
/// several sources of a program may define it where kernels are played on CPUs.
template <class = void>
CCL_DEVICE void end_kernel() {
  ptx::wait_for_previous();
}

/// Kernel of all launches of one body. Group g of block b works on channel g * blocks + b. A
/// multiprocessor has one block, because batches of loads need its registers.
template <class Group, class Body>
__global__ void __launch_bounds__(Body::max_lanes, 1)
    run_collective(const __grid_constant__ typename Body::Work work, int channels) {
  ptx::launch_dependents();
  // Equal in all lanes of a warp, which only the shuffle makes known to the compiler (two-shot of
  // 4 MiB on 4 GPUs: 21.8 us, without it 23.1 us).
  const int group = __shfl_sync(0xffff'ffffu, int(threadIdx.x) / Group::width, 0);
  const int channel = group * int(gridDim.x) + int(blockIdx.x);
  const Body body{work};
  if constexpr (detail::HasBlockEpilogue<Body>) {
    const auto left = body(Group{}, channel);
    __syncthreads();  // every group has read the data that end() overwrites
    body.end(left, int(blockIdx.x), int(threadIdx.x), int(blockDim.x));
  } else {
    if (channel < channels) body(Group{}, channel);
  }
  end_kernel();
}

/// Runs one of several launches in one kernel, on `blocks` of its blocks. This block is `block`.
template <class Group, class Body>
CCL_DEVICE void run_part(const typename Body::Work& work, int block, int blocks) {
  const int group = __shfl_sync(0xffff'ffffu, int(threadIdx.x) / Group::width, 0);
  const int channel = group * blocks + block;
  const bool here = channel < work.channels;
  if constexpr (detail::HasBlockEpilogue<Body>) {
    // The other groups of the block exist because another part needs them.
    Word left = 0;
    if (here) left = Body{work}(Group{}, channel);
    __syncthreads();  // every group has read the data that end() overwrites
    const int lanes = work.channels / blocks * Group::width;
    if (here) Body{work}.end(left, block, int(threadIdx.x), lanes);
  } else {
    if (here) Body{work}(Group{}, channel);
  }
}

/// Member of a kernel that several launches share: its work and its blocks.
template <int N, class Group, class Body>
struct KernelPart {
  using Lanes = Group;
  using Runs = Body;
  typename Body::Work work;
  int first_block = 0, blocks = 1;  // none: not in this launch

  CCL_DEVICE void run() const {
    const int block = int(blockIdx.x) - first_block;
    if (block >= 0 && block < blocks) run_part<Group, Body>(work, block, blocks);
  }
};
template <class... Parts>
struct KernelParts : Parts... {};

/// A block belongs to one part, which lays its channels over its blocks as `run_collective` does.
template <int MaxLanes, class... Parts>
__global__ void __launch_bounds__(MaxLanes, 1)
    run_group(const __grid_constant__ KernelParts<Parts...> parts) {
  ptx::launch_dependents();
  (static_cast<const Parts&>(parts).run(), ...);
  end_kernel();
}

/// Up to `Most` members of one kind: their works and the first block of each.
template <class Group, class Body, int Most>
struct KernelList {
  using Work = typename Body::Work;
  alignas(Work) unsigned char works[Most][sizeof(Work)];
  int first_block[Most + 1];  // of each, and behind the last

  CCL_DEVICE void run() const {
    int n = 0;
    while (int(blockIdx.x) >= first_block[n + 1]) ++n;
    const int first = first_block[n];
    run_part<Group, Body>(*reinterpret_cast<const Work*>(works[n]), int(blockIdx.x) - first,
                          first_block[n + 1] - first);
  }
};
template <class Group, class Body, int Most>
__global__ void __launch_bounds__(Body::max_lanes, 1)
    run_list(const __grid_constant__ KernelList<Group, Body, Most> list) {
  static_assert(sizeof(list) <= 4000, "Kernel arguments beyond 4 KB want a newer driver.");
  ptx::launch_dependents();
  list.run();
  end_kernel();
}

/// Applies the prologue and the epilogue of the reduction, for a communicator of one rank.
template <class R>
__global__ void run_alone(const __grid_constant__ R reduction, const typename R::Type* input,
                          typename R::Type* output, Index count) {
  const R loaded = reduction.load();
  const Index lanes = Index{gridDim.x} * blockDim.x;
  for (Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += lanes) {
    output[i] = loaded.finish(loaded.prepare(input[i]));
  }
}

/// Number of elements that a lane loads and stores at once: up to 16 bytes of the larger type.
template <class T, class U>
inline constexpr int map_run = [] {
  constexpr int bytes = int(sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U));
  constexpr bool powers = (sizeof(T) & (sizeof(T) - 1)) == 0 && (sizeof(U) & (sizeof(U) - 1)) == 0;
  return powers && bytes <= 8 ? 16 / bytes : 1;
}();
template <class T, int Run>
struct alignas(Run == 1 ? alignof(T) : sizeof(T) * Run) MapRun {
  unsigned char bytes[sizeof(T) * Run];
};
template <class T, class U, int Run, class F>
CCL_DEVICE void map_run_at(const F& map, const void* input, void* output, Index at) {
  const MapRun<T, Run> from = static_cast<const MapRun<T, Run>*>(input)[at];
  MapRun<U, Run> to;
  CCL_UNROLL for (int i = 0; i < Run; ++i) {
    Slot<T> value;
    __builtin_memcpy(static_cast<void*>(&value), from.bytes + i * sizeof(T), sizeof(T));
    const U mapped = map(static_cast<const T&>(value.value));
    __builtin_memcpy(to.bytes + i * sizeof(U), &mapped, sizeof(U));
  }
  static_cast<MapRun<U, Run>*>(output)[at] = to;
}
/// Applies a functor to each of a rank's own elements. Buffers are aligned to runs. The last run
/// may be shorter.
template <class F, class T, class U, int Run>
__global__ void run_map(const __grid_constant__ F map, const void* input, void* output,
                        Index count) {
  const Index lanes = Index{gridDim.x} * blockDim.x, runs = count / Run;
  const Index lane = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  for (Index i = lane; i < runs; i += lanes) map_run_at<T, U, Run>(map, input, output, i);
  if (Run > 1 && lane < count % Run) map_run_at<T, U, 1>(map, input, output, runs * Run + lane);
}

/// Shape of a launch on a GPU: `channels` groups, spread evenly over `blocks`. All blocks of all
/// ranks must be resident at once, so `blocks` is at most the number of free multiprocessors.
struct CudaShape {
  int channels = 1;
  int blocks = 1;
  /// Lets the launch start before the previous one in the stream has ended, if the share has room
  /// for both. It waits for that launch before it accesses memory, and meanwhile occupies
  /// multiprocessors. Null: the launch starts when the previous one has ended.
  LaunchShare* share = nullptr;
};

/// Runs one launch on GPU lanes: `Body{work}(group, channel)` for each channel, on one group per
/// channel. Returns CUDA's error codes, which the caller turns into an `Error` of the rank.
struct CudaExecutor {
  /// Queues the launch on `stream` of the current device. Copies `work`. The memory that it points
  /// to must be readable there and outlive the launch.
  template <LaneGroup Group, class Body>
  [[nodiscard]] static cudaError_t launch(const typename Body::Work& work, const CudaShape& shape,
                                          cudaStream_t stream) {
    if (shape.channels < 1 || shape.blocks < 1) return cudaErrorInvalidValue;
    if (detail::HasBlockEpilogue<Body> && shape.channels % shape.blocks != 0) {
      return cudaErrorInvalidConfiguration;
    }
    const int lanes = div_up(shape.channels, shape.blocks) * Group::width;
    if (lanes > Body::max_lanes) return cudaErrorInvalidConfiguration;
    int shared_bytes = 0;
    if constexpr (requires { work.shared_bytes; }) shared_bytes = work.shared_bytes;
    return launch_kernel(detail::run_collective<Group, Body>, {shape.blocks, lanes, shared_bytes},
                         shape.share, stream, work, shape.channels);
  }

  /// Queues several launches as one kernel. `lanes`: maximum lanes per block over the parts.
  template <int MaxLanes, class... Parts>
  [[nodiscard]] static cudaError_t launch_parts(const detail::KernelParts<Parts...>& parts,
                                                int blocks, int lanes, LaunchShare* share,
                                                cudaStream_t stream) {
    if (lanes > MaxLanes) return cudaErrorInvalidConfiguration;
    return launch_kernel(detail::run_group<MaxLanes, Parts...>, {blocks, lanes}, share, stream,
                         parts);
  }
  template <LaneGroup Group, class Body, int Most>
  [[nodiscard]] static cudaError_t launch_list(const detail::KernelList<Group, Body, Most>& list,
                                               int blocks, int lanes, LaunchShare* share,
                                               cudaStream_t stream) {
    if (lanes > Body::max_lanes) return cudaErrorInvalidConfiguration;
    return launch_kernel(detail::run_list<Group, Body, Most>, {blocks, lanes}, share, stream, list);
  }
  template <LaneGroup Group, class Body, int Most>
  [[nodiscard]] static cudaError_t load_list() {
    return load_kernel(detail::run_list<Group, Body, Most>);
  }
  template <int MaxLanes, class... Parts>
  [[nodiscard]] static cudaError_t load_parts() {
    return load_kernel(detail::run_group<MaxLanes, Parts...>);
  }

  /// Blocks of a launch, and lanes and bytes of shared memory of each.
  struct Grid {
    int blocks, lanes, shared_bytes = 0;
  };
  /// `share`: see `CudaShape`.
  template <class... Params, class... Args>
  [[nodiscard]] static cudaError_t launch_kernel(void (*kernel)(Params...), const Grid& grid,
                                                 LaunchShare* share, cudaStream_t stream,
                                                 const Args&... args) {
    // Kernels for sm_90 or later alone wait for the launch before, and know clusters.
    if (!kernels_may_begin_early.load(std::memory_order_relaxed)) share = nullptr;
    const bool early = share != nullptr && share->take(grid.blocks);
    const int cluster = share != nullptr ? share->cluster_of(grid.blocks) : 1;
    cudaLaunchAttribute attributes[3] = {};
    unsigned count = 0;
    if (early) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {unsigned(cluster), 1, 1};
      attributes[count].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
      attributes[count++].val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(unsigned(grid.blocks));
    config.blockDim = dim3(unsigned(grid.lanes));
    config.dynamicSmemBytes = std::size_t(grid.shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = count;
    return reported(cudaLaunchKernelEx(&config, kernel, args...));
  }

  /// Queues the work of a communicator of one rank.
  template <class R>
  [[nodiscard]] static cudaError_t alone(const R& reduction, const void* input, void* output,
                                         Index count, cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    const Index blocks = div_up<Index>(count, 1024);
    using T = typename R::Type;
    return launch_kernel(detail::run_alone<R>, {int(blocks < 512 ? blocks : 512), 256}, {}, stream,
                         reduction, static_cast<const T*>(input), static_cast<T*>(output), count);
  }

  /// Loads the kernel that `alone` queues, which a composition may launch if it has one rank.
  template <class R>
  [[nodiscard]] static cudaError_t load_alone() {
    if constexpr (reduces<R>) {
      if constexpr (R::prepares) return load_kernel(detail::run_alone<R>);
    }
    return cudaSuccess;
  }

  /// Queues `map` on a rank's own elements of `T`.
  template <class F, class T, class U>
  [[nodiscard]] static cudaError_t map(const F& map, const void* input, void* output, Index count,
                                       cudaStream_t stream) {
    constexpr int run = detail::map_run<T, U>;
    const auto aligned = [](const void* at, Index bytes) {
      return reinterpret_cast<cuda::std::uintptr_t>(at) % cuda::std::uintptr_t(bytes) == 0;
    };
    const bool whole = aligned(input, run * sizeof(T)) && aligned(output, run * sizeof(U));
    const Index blocks = div_up<Index>(count, 256 * (whole ? run : 1));
    // Enough blocks to saturate memory. A plain launch waits for all earlier launches.
    const int most = int(blocks < 1024 ? blocks : 1024);
    return launch_kernel(whole ? detail::run_map<F, T, U, run> : detail::run_map<F, T, U, 1>,
                         {most, 256}, {}, stream, map, input, output, count);
  }
  template <class F, class T, class U>
  [[nodiscard]] static cudaError_t load_map() {
    const cudaError_t e = load_kernel(detail::run_map<F, T, U, detail::map_run<T, U>>);
    if (e != cudaSuccess) return e;
    return load_kernel(detail::run_map<F, T, U, 1>);
  }

  /// Loads the kernel onto the current device. Loading at the first launch could deadlock: it waits
  /// for running kernels, which may wait for this rank.
  ///
  /// `shared_bytes`: maximum shared memory that a launch may ask for, on GPUs with bulk copies.
  template <LaneGroup Group, class Body>
  [[nodiscard]] static cudaError_t load(int shared_bytes = 0) {
    const auto kernel = detail::run_collective<Group, Body>;
    if (shared_bytes > 0 && has_bulk_copies()) {
      const cudaError_t e =
          reported(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
      if (e != cudaSuccess) return e;
    }
    return load_kernel(kernel);
  }
  /// True if the current device copies memory in bulk: sm_90 and later.
  static bool has_bulk_copies() {
    static std::atomic<signed char> known[64];  // by device: 0 unknown, 1 yes, -1 no
    int device = 0, major = 0;
    if (reported(cudaGetDevice(&device)) != cudaSuccess || device >= 64) return false;
    signed char has = known[device].load(std::memory_order_relaxed);
    if (has == 0) {
      (void)reported(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
      has = major >= 9 ? 1 : -1;
      known[device].store(has, std::memory_order_relaxed);
    }
    return has > 0;
  }

  template <class... Params>
  [[nodiscard]] static cudaError_t load_kernel(void (*kernel)(Params...)) {
    cudaFuncAttributes attributes{};
    const cudaError_t e = reported(cudaFuncGetAttributes(&attributes, kernel));
    constexpr int first_that_waits = 90;
    if (e == cudaSuccess && attributes.ptxVersion < first_that_waits) {
      kernels_may_begin_early = false;
    }
    return e;
  }
};

}  // namespace ccl::detail
