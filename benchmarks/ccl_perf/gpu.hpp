#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "verify.hpp"

/// What the benchmark needs of GPUs: memory, one stream per rank, time, and data to fill and check.
/// Linked in three forms: CUDA's, none, and an emulation on CPU memory for tests.
namespace ccl::perf::gpu {

/// What the driver says of this machine. Trivially copyable: it travels through a pipe.
struct Facts {
  int count = 0;            // GPUs that this program may use
  char model[64] = {};      // of the first
  char driver[32] = {};     // its version; empty: unknown
  int driver_cuda = 0;      // 13000: what CUDA version the driver takes at most
  int runtime_cuda = 0;     // what this program was built with
  char why_none[200] = {};  // where `count` is 0
};

/// False: this program has no device code.
bool compiled();
/// Initialises the driver, so that this process's forked children could not use it: only for a
/// process that ends afterwards.
Facts look();
/// Makes a GPU the calling thread's, with a context.
Result<void> select(int device);
/// What a communicator on that GPU is given as its device.
int communicator_device(int device);
/// Bytes of the current GPU's memory that nobody uses.
Result<Index> free_memory();
Result<std::byte*> allocate(Index bytes);
void release(std::byte* memory);

/// Holds streams back until everyone's work is queued. In memory that ranks share, on a page of its
/// own.
struct Gate {
  std::atomic<unsigned> opened{0};  // the number of the last hold that may go on
  std::atomic<unsigned> missed{0};  // holds that gave up
};

/// One rank's stream. Everything is queued in order; whatever waits for the GPU gives up at the
/// deadline.
class Queue {
 public:
  /// `gate` must outlive it.
  static Result<std::unique_ptr<Queue>> create(Gate& gate, double deadline_s);
  virtual ~Queue() = default;

  virtual Stream stream() const = 0;
  virtual void* native() const = 0;  // cudaStream_t
  /// Waits for all that was queued.
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

  /// What `calls` queues becomes a graph, in place of the last one.
  virtual Result<void> capture(const std::function<Result<void>()>& calls) = 0;
  virtual Result<void> replay() = 0;
  virtual Result<void> drop_graph() = 0;

  /// Nothing that is queued later runs before the gate is opened to this number.
  virtual Result<void> hold(unsigned number) = 0;
  virtual Result<void> begin_clock() = 0;
  virtual Result<void> end_clock() = 0;
  /// Microseconds between the two, once both have passed.
  virtual Result<double> clock_us() = 0;
};

Result<void> fill_send(Queue& queue, const Shape& shape, DataType type, RedOp redop,
                       std::byte* send);
/// Elements of `recv` that are not bit for bit what the operation must give on this rank.
Result<Index> count_wrong(Queue& queue, const Shape& shape, DataType type, RedOp redop,
                          const std::byte* recv);

}  // namespace ccl::perf::gpu
