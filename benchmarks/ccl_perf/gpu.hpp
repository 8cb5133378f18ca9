#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "verify.hpp"

/// GPU functions of the benchmark: memory, one stream per rank, time, and data to fill and check.
/// It is linked in three forms: CUDA, no GPUs, and an emulation on CPU memory for tests.
namespace ccl::perf::gpu {

/// Driver and GPUs of this machine. Trivially copyable, because it is sent through a pipe.
struct Facts {
  int count = 0;            // GPUs that this program may use
  char model[64] = {};      // model of the first
  char driver[32] = {};     // version of the driver; empty: unknown
  int driver_cuda = 0;      // CUDA version that the driver supports at most, such as 13000
  int runtime_cuda = 0;     // CUDA version of this program
  char why_none[200] = {};  // reason why `count` is 0
};

/// True if this program has device code.
bool compiled();
/// Queries the driver and the GPUs. It initializes the driver, which forked children could not use
/// then. Only a process that ends afterwards may call it.
Facts look();
/// Makes a GPU current in the calling thread, with a context.
Result<void> select(int device);
/// Returns the device number for a communicator on this GPU.
int communicator_device(int device);
/// Returns the unused bytes of the current GPU's memory.
Result<Index> free_memory();
Result<std::byte*> allocate(Index bytes);
void release(std::byte* memory);

/// Gate that holds streams until all work is queued. It lies in shared memory of the ranks, on a
/// page of its own.
struct StartGate {
  std::atomic<unsigned> opened{0};  // number of the last hold that may continue
  std::atomic<unsigned> missed{0};  // number of holds that timed out
};

/// Stream of one rank. All work is queued in order. Waits for the GPU end at the deadline.
class Queue {
 public:
  /// Creates a queue. `gate` must outlive it.
  static Result<std::unique_ptr<Queue>> create(StartGate& gate, double deadline_s);
  virtual ~Queue() = default;

  virtual Stream stream() const = 0;
  virtual void* native() const = 0;  // cudaStream_t
  /// Waits for all queued work.
  virtual Result<void> wait() = 0;

  virtual Result<void> fill_values(DataType type, RedOp redop, int ranks, int rank, Index count,
                                   std::byte* send) = 0;
  virtual Result<void> fill_moved(int from, Index bytes, std::byte* send) = 0;
  virtual Result<void> poison(std::byte* recv, Index bytes) = 0;
  virtual Result<Index> count_values(DataType type, RedOp redop, int ranks, Index first,
                                     Index count, const std::byte* recv) = 0;
  virtual Result<Index> count_moved(const Piece& piece, Index element_bytes,
                                    const std::byte* recv) = 0;
  virtual Result<Index> count_poison_gone(const std::byte* memory, Index bytes) = 0;

  /// Captures the work of `calls` into a graph, which replaces the previous one.
  virtual Result<void> capture(const std::function<Result<void>()>& calls) = 0;
  virtual Result<void> replay() = 0;
  virtual Result<void> drop_graph() = 0;

  /// Holds all later work until the gate is opened to this number.
  virtual Result<void> hold(unsigned number) = 0;
  virtual Result<void> begin_clock() = 0;
  virtual Result<void> end_clock() = 0;
  /// Returns the microseconds between the two, after both have passed.
  virtual Result<double> clock_us() = 0;
  /// Returns the nanoseconds that make times of the lanes' clock those of the system clock, to
  /// about 1 us. Nothing is queued before it.
  virtual Result<long long> lane_clock_ns() = 0;
};

Result<void> fill_send(Queue& queue, const Shape& shape, DataType type, RedOp redop,
                       std::byte* send);
/// Returns the number of elements of `recv` that differ in any bit from the result of the operation
/// on this rank.
Result<Index> count_wrong(Queue& queue, const Shape& shape, DataType type, RedOp redop,
                          const std::byte* recv);

}  // namespace ccl::perf::gpu
