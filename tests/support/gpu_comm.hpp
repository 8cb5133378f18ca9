#pragma once

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gpu/order/order.hpp"
#include "support/catch.hpp"
#include "support/gpu_scheduler.hpp"

namespace ccl::test {

/// A communicator with one rank on each of the GPUs.
class GpuComm {
 public:
  GpuComm(GpuScheduler& gpus, int number, int ranks, int blocks, bool in_order, int cluster = 1)
      : gpus_{gpus}, number_{number}, blocks_{blocks} {
    for (int r = 0; r < ranks; ++r) {
      auto gpu = detail::Gpu::open(r);
      REQUIRE(gpu);
      gpus_of_ranks_.push_back(*gpu);
      orders_.push_back(std::make_unique<detail::GpuOrder>(*std::move(gpu)));
      REQUIRE(orders_.back()->join({blocks, 1, 0, in_order, nullptr, 0, cluster}));
    }
    calls_.resize(std::size_t(ranks));
  }
  /// Any thread may call, so it makes no assertion of the test's framework.
  void call(int rank, CUstream stream, int blocks = 0, bool always_early = false) {
    const auto r = std::size_t(rank);
    const auto queued = gpus_.launch(*orders_[r], number_, calls_[r]++,
                                     blocks > 0 ? blocks : blocks_, stream, always_early);
    if (!queued) throw std::runtime_error{queued.error().what};
  }
  detail::GpuOrder& order(int rank) { return *orders_[std::size_t(rank)]; }
  /// Writes what lanes of a kernel write while they wait for a peer, or clear afterwards.
  void waits(int rank, bool wait) {
    gpus_of_ranks_[std::size_t(rank)]->watched().waits = {wait ? Word{1} : Word{0}, 0, 1};
  }
  /// As what the program's own kernels write.
  void program_waits(int rank) {
    gpus_of_ranks_[std::size_t(rank)]->watched().program_waits = {Word{1}, 0, 0};
  }

 private:
  GpuScheduler& gpus_;
  int number_, blocks_;
  std::vector<std::shared_ptr<detail::Gpu>> gpus_of_ranks_;
  std::vector<std::unique_ptr<detail::GpuOrder>> orders_;
  std::vector<int> calls_;
};

}  // namespace ccl::test
