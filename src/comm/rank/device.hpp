#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "gpu/order/order.hpp"

namespace ccl::detail {

/// GPU of a rank and the order of its launches. Also counts the calls on CPU streams.
struct CommDevice {
  std::shared_ptr<Gpu> gpu;         // null on a CPU rank
  std::unique_ptr<GpuOrder> order;  // of the launches
  // Buffer registry of src/connect, which alone knows the type. Null until a composition needs it.
  std::shared_ptr<void> registry;
  // CPUs nearest to the GPU, for threads and host memory that serve it; empty: any.
  std::vector<int> cpus{};
  int numa = -1;         // node of these CPUs; -1: unknown
  int ranks_on_gpu = 1;  // most ranks of this communicator on one GPU
  bool lends = false;    // memory of the GPU, to ranks that relay over it without seeing it
  int max_blocks = 1;    // of a launch on a GPU; equal on all ranks, as channels are
  std::atomic<int> in_flight{0};  // calls on streams of CPU ranks that have not completed

  /// True while a call or a launch of this rank has not completed.
  bool busy() const {
    return in_flight.load(std::memory_order_acquire) > 0 || (order && !order->idle());
  }
};

}  // namespace ccl::detail
