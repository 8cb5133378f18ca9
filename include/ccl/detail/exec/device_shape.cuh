#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/exec/cuda_executor.cuh>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/exec/launch_shape.hpp>
#include <ccl/proto/protocol.hpp>

namespace ccl::detail {

/// Group that works on a channel: a warp if packets carry flags, because lanes then do not wait for
/// each other; else four warps. Each slice then costs a release, during which the other groups of
/// the block go on. On 32 blocks of 2 H100, all-reduce of 256 MiB by Ring takes 825 us in 128
/// groups of 128 lanes, and 1030 us in 32 groups of 512 (docs/validation/kernels.md).
template <class Proto>
using LanesOf =
    cuda::std::conditional_t<Proto::carries_flags, WarpLanes, BlockLanes<group_lanes(false)>>;

/// Minimum bytes of a channel.
template <class Group>
Index channel_worth(const DeviceTarget& target) {
  return channel_worth(Group::width, target.channel_bytes);
}
/// Spreads `use` groups over blocks.
template <class Group, int MaxLanes>
CudaShape device_shape(Index use, const DeviceTarget& target) {
  const LaunchShape shape = launch_shape(use, Group::width, MaxLanes, target.max_blocks);
  return {shape.channels, shape.blocks, target.share};
}
template <class Group, int MaxLanes>
CudaShape device_shape(Index bytes, int channels, const DeviceTarget& target) {
  const LaunchShape shape = launch_shape(bytes, channels, target.channel_bytes, Group::width,
                                         MaxLanes, target.max_blocks);
  return {shape.channels, shape.blocks, target.share};
}

/// Runs `call` with `device` as the current device, and restores the device of the thread.
template <class F>
cudaError_t on_device(int device, F call) {
  int before = -1;
  if (const cudaError_t e = reported(cudaGetDevice(&before)); e != cudaSuccess) return e;
  if (before == device) return call();
  if (const cudaError_t e = reported(cudaSetDevice(device)); e != cudaSuccess) return e;
  const cudaError_t result = call();
  (void)reported(cudaSetDevice(before));
  return result;
}

/// Checks that a slice holds what the lanes move at once. Otherwise returns a code that
/// `Launch::finish` turns into an error.
template <class Group, class Body>
cudaError_t check_slices(const typename Body::Work& work) {
  constexpr Index needed = Body::template min_slice_bytes<Group>;
  if (Index{sizeof(Packet)} * work.slot_packets * work.slice_steps >= needed) return cudaSuccess;
  return cudaError_t(-needed);
}

template <class Group, class Body>
cudaError_t launch_body(typename Body::Work& work, Index bytes, const DeviceTarget& target) {
  if (const cudaError_t e = check_slices<Group, Body>(work); e != cudaSuccess) return e;
  const CudaShape shape = device_shape<Group, Body::max_lanes>(bytes, work.channels, target);
  work.channels = shape.channels;
  return CudaExecutor::launch<Group, Body>(work, shape, target.stream);
}

template <int Align>
using Aligned = cuda::std::integral_constant<int, Align>;
/// Minimum alignment of buffers of the elements of `R`, in bytes.
template <class R>
inline constexpr int min_align = [] {
  constexpr int align = int(alignof(typename R::Type));
  return align < 16 ? align : 16;
}();
/// Calls `f` with the alignment of the kernels for buffers that are multiples of `align`, as a
/// type; what is only moved has some for words, too. `check_aligned` has refused less than
/// `min_align` where a rank uses the buffer.
template <class R, class F>
cudaError_t with_alignment(int align, F f) {
  if (align == 16) return f(Aligned<16>{});
  if constexpr (!reduces<R>) {
    if (align >= 4) return f(Aligned<4>{});
  }
  return f(Aligned<min_align<R>>{});
}
/// Returns the common alignment of addresses and sizes that are or'ed together.
inline int lowest(Word bits) {
  return int(bits & -bits);
}
/// Calls `f` with each alignment.
template <class R, class F>
cudaError_t for_alignments(F f) {
  cudaError_t e = f(Aligned<16>{});
  if constexpr (!reduces<R>) e = e != cudaSuccess ? e : f(Aligned<4>{});
  return e != cudaSuccess ? e : f(Aligned<min_align<R>>{});
}

/// Registers a kernel for host code that launches it: see `register_kernels`.
template <class Kernels>
struct RegisteredKernels;

}  // namespace ccl::detail
