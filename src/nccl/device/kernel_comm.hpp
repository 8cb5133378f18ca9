#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/shared_memory.hpp>
#include <ccl/comm/window.hpp>

#include <functional>
#include <memory>
#include <utility>

#include "nccl/device/kernel_window.hpp"
#include "nccl/device/window_table.hpp"

namespace ccl::detail::nccl {

/// Number of ranks of this host, if those of every host are as many and numbered one after the
/// other; else 1. It is the size of the LSA teams.
int local_ranks(const Communicator& comm);

/// Succeeds if kernels with NVIDIA's headers can use memory of all ranks: all are on GPUs of one
/// host that address each other, and memory has cuMem handles. Fails with `Errc::not_supported`.
Result<void> check_kernels_reach_all(const Communicator& comm);

/// Communicator of kernels with NVIDIA's headers (ncclDevComm): what it refers to in GPU memory.
/// All ranks are one LSA team.
class KernelComm {
 public:
  using Table = std::function<Result<WindowTable*>()>;

  /// Creates the resources that `wants`, an ncclDevCommRequirements, asks for. Then writes the
  /// ncclDevComm of the caller's version to `made`, and the handles of the resources. `table`
  /// returns the rank's windows. Collective; it succeeds on all ranks or fails on all.
  static Result<std::shared_ptr<KernelComm>> create(const Communicator& comm, const void* wants,
                                                    void* made, const Table& table);
  /// Returns the window that identifies an ncclDevComm of any version.
  static ncclWindow_t window_in(const void* dev_comm);

  /// Window of its resources.
  ncclWindow_t window() const { return view_->handle(); }

 private:
  static Result<std::shared_ptr<KernelComm>> make(const Communicator& comm, const void* wants,
                                                  void* made, const Table& table);
  KernelComm(SharedMemory memory, Window window)
      : memory_{std::move(memory)}, window_{std::move(window)} {}
  SharedMemory memory_;
  Window window_;
  std::unique_ptr<KernelWindow> view_;
};

}  // namespace ccl::detail::nccl
