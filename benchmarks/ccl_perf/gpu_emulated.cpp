// Emulated GPUs: CPU memory and calls that block, to test the rest on a machine without GPUs.
// PERF_EMULATED_GPUS is their number. PERF_EMULATED_CLOCK_US: their clock is found to be so much
// later than it is, or does not answer ("never").
#include <ccl/detail/base/cpu.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <thread>

#include "gpu.hpp"
#include "report.hpp"

namespace ccl::perf::gpu {
namespace {

class EmulatedQueue final : public Queue {
 public:
  EmulatedQueue(StartGate& gate, double deadline_s) : gate_{gate}, deadline_s_{deadline_s} {}

  Stream stream() const override { return {}; }
  void* native() const override { return nullptr; }
  Result<void> wait() override {
    if (held_ != 0) {
      const double until = now_s() + deadline_s_;
      while (int(gate_.opened.load() - held_) < 0) {
        if (now_s() > until) return fail(Errc::timed_out, "the gate was not opened");
        std::this_thread::yield();
      }
      held_ = 0;
      if (replays_ == 0) return {};  // calls have run when they were queued
      begin_ = now_s();
      for (; replays_ > 0; --replays_) CCL_CHECK(graph_());
      end_ = now_s();
    }
    return {};
  }

  Result<void> fill_values(DataType type, RedOp redop, int ranks, int rank, Index count,
                           std::byte* send) override {
    perf::fill_values(type, redop, ranks, rank, count, send);
    return {};
  }
  Result<void> fill_moved(int from, Index bytes, std::byte* send) override {
    perf::fill_moved(from, bytes, send);
    return {};
  }
  Result<void> poison(std::byte* recv, Index bytes) override {
    perf::poison(recv, bytes);
    return {};
  }
  Result<Index> count_values(DataType type, RedOp redop, int ranks, Index first, Index count,
                             const std::byte* recv) override {
    return perf::count_values(type, redop, ranks, first, count, recv);
  }
  Result<Index> count_moved(const Piece& piece, Index element_bytes,
                            const std::byte* recv) override {
    return perf::count_moved(piece, element_bytes, recv);
  }
  Result<Index> count_poison_gone(const std::byte* memory, Index bytes) override {
    return bytes - std::count(memory, memory + bytes, std::byte{poison_byte});
  }

  /// Keeps the calls as the graph. Each replay makes them again.
  Result<void> capture(const std::function<Result<void>()>& calls) override {
    graph_ = calls;
    return {};
  }
  Result<void> replay() override {
    if (held_ == 0) return graph_();
    ++replays_;
    return {};
  }
  Result<void> drop_graph() override {
    graph_ = nullptr;
    return {};
  }

  Result<void> hold(unsigned number) override {
    held_ = number;
    return {};
  }
  Result<void> begin_clock() override {
    begin_ = now_s();
    return {};
  }
  Result<void> end_clock() override {
    end_ = now_s();
    return {};
  }
  Result<double> clock_us() override { return (end_ - begin_) * 1e6; }
  Result<long long> lane_clock_ns() override {
    const char* const late_us = std::getenv("PERF_EMULATED_CLOCK_US");
    if (late_us != nullptr && std::string_view{late_us} == "never") {
      return fail(Errc::timed_out, "the emulated clock does not answer");
    }
    const auto system = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::nanoseconds{system}.count() -
           static_cast<long long>(ccl::detail::steady_ns()) +
           (late_us == nullptr ? 0 : std::atoll(late_us) * 1000);
  }

 private:
  StartGate& gate_;
  double deadline_s_;
  std::function<Result<void>()> graph_;
  unsigned held_ = 0;
  int replays_ = 0;
  double begin_ = 0, end_ = 0;
};

}  // namespace

bool compiled() {
  return true;
}
Facts look() {
  Facts facts;
  const char* const count = std::getenv("PERF_EMULATED_GPUS");
  facts.count = count == nullptr ? 0 : std::atoi(count);
  std::strcpy(facts.model, "emulated GPU");
  std::strcpy(facts.why_none, "PERF_EMULATED_GPUS is not set");
  return facts;
}
Result<void> select(int) {
  return {};
}
int communicator_device(int) {
  return -1;
}
Result<Index> free_memory() {
  return Index{1} << 40;
}
Result<std::byte*> allocate(Index bytes) {
  return static_cast<std::byte*>(
      std::aligned_alloc(4096, std::size_t((bytes + 4096) / 4096 * 4096)));
}
void release(std::byte* memory) {
  std::free(memory);
}
Result<std::unique_ptr<Queue>> Queue::create(StartGate& gate, double deadline_s) {
  return std::make_unique<EmulatedQueue>(gate, deadline_s);
}

}  // namespace ccl::perf::gpu
