#pragma once

// Communication inside the program's own kernels. A `DeviceComm`, made from a `Communicator` and a
// `Window`, gives the `Team` that is a kernel's argument. `TeamSession` is the part of one block in
// a launch: put, signal, wait, count and barrier. `Tiles` are collectives of what a block has just
// computed. All but the groups of lanes and `check_launch` are in <ccl/device/...>, for CPU lanes
// too.

#include <ccl/detail/exec/cuda_executor.cuh>
#include <ccl/detail/exec/register_device_code.cuh>
#include <ccl/detail/lanes/device_lanes.cuh>
#include <ccl/device/device_comm.hpp>
#include <ccl/device/tiles.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ccl {

using detail::BlockLanes;
using detail::WarpLanes;

/// Fails with `Errc::invalid_argument` if a launch of `blocks` blocks of `lanes` threads is not
/// resident as a whole on the current device, together with those of the other ranks on it. A
/// kernel that waits for peers would then not end. Also loads the kernel: a launch that loads it
/// would wait for kernels that wait for it.
template <class... Params>
[[nodiscard]] Result<void> check_launch(const DeviceComm& comm, void (*kernel)(Params...),
                                        int blocks, int lanes, std::size_t shared_bytes = 0) {
  cudaFuncAttributes attributes{};
  int device = 0, multiprocessors = 0, each = 0;
  const auto* const code = reinterpret_cast<const void*>(kernel);
  cudaError_t e = cudaFuncGetAttributes(&attributes, code);
  if (e == cudaSuccess) e = cudaGetDevice(&device);
  if (e == cudaSuccess) {
    e = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (e == cudaSuccess) {
    e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, code, lanes, shared_bytes);
  }
  if (detail::reported(e) != cudaSuccess) {
    Error error{Errc::cuda, cudaGetErrorString(e)};
    error.os_code = int(e);
    return fail(std::move(error));
  }
  return comm.check_launch(blocks, each * multiprocessors);
}

}  // namespace ccl
