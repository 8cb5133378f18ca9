#pragma once

// Ranks whose kernels address each other's memory in windows. The driver's GPUs are plain memory.
#include <ccl/comm/communicator.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nccl/device/allocations.hpp"
#include "nccl/device/flat_range.hpp"
#include "support/gpu_ranks.hpp"
#include "support/region_attributes.hpp"

namespace ccl::test {

inline constexpr std::size_t page = 1 << 16;  // of the driver
inline std::atomic<int> no_range_on{-1};      // device that has no addresses left

/// Installs GPUs whose memory a program may register, and of which one may lack addresses.
inline void install_kernel_gpus(int devices) {
  auto cuda = install_gpus(devices);
  static const auto reserve = cuda.mem_address_reserve;
  cuda.mem_address_reserve = [](CUdeviceptr* at, std::size_t bytes, std::size_t alignment,
                                CUdeviceptr where, unsigned long long flags) {
    const bool flat = bytes >= detail::nccl::FlatRange::stride_unit;
    if (flat && fake::current() == no_range_on) return CUDA_ERROR_OUT_OF_MEMORY;
    return reserve(at, bytes, alignment, where, flags);
  };
  detail::use_cuda_driver(cuda, devices);
}

/// Creates the ranks, each on a GPU of its own.
inline std::vector<Result<Communicator>> create_ranks(int ranks) {
  install_kernel_gpus(ranks);
  std::vector<int> devices;
  for (int r = 0; r < ranks; ++r) devices.push_back(r);
  return create(devices);
}

/// Runs `f(comm)` on a thread for each rank; it returns a problem, or an empty text.
inline void each_comm(std::vector<Result<Communicator>>& comms,
                      const std::function<std::string(Communicator&)>& f) {
  std::vector<std::string> problems(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    REQUIRE(comms[r]);
    threads.emplace_back([&, r] { problems[r] = f(*comms[r]); });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t r = 0; r < comms.size(); ++r) {
    INFO("rank " << r << ": " << problems[r]);
    CHECK(problems[r].empty());
  }
}

/// Memory of ncclMemAlloc.
struct Taken {
  std::byte* at;
  Taken(int device, std::size_t bytes)
      : at{static_cast<std::byte*>(*detail::nccl::allocate_shareable(device, bytes))} {}
  ~Taken() { detail::nccl::release_shareable(at); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
};

/// What kernels compute: the address of a rank's memory in a window.
template <class T>
T* in_window(const ncclWindow_vidmem& window, int rank, std::size_t offset = 0) {
  return reinterpret_cast<T*>(
      window.lsaFlatBase + std::size_t(rank) * window.stride4G * (std::size_t{1} << 32) + offset);
}

}  // namespace ccl::test
