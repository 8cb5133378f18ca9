#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/shared_memory.hpp>
#include <ccl/comm/window.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>

#include <cstdint>
#include <memory>
#include <utility>

#include <driver_types.h>

namespace ccl::detail::nccl {

/// Which of the signals between two ranks.
struct SignalPlace {
  int peer = 0, signal = 0, context = 0;
};

/// Counters of one communicator, which ranks add to at their peers (ncclSignal). For each source,
/// context and signal a rank has the number of signals that came, which only that source adds to,
/// and the number that it has waited for.
///
/// Work on a GPU is in the order of the communicator's launches, so the communicator's end waits
/// for it, and the counters live until it has run.
class Signals : public std::enable_shared_from_this<Signals> {
 public:
  /// Creates the counters. Collective. Fails with `Errc::not_supported` if ranks cannot address
  /// each other's memory.
  static Result<std::shared_ptr<Signals>> create(const Communicator& comm, int contexts,
                                                 int signals);

  /// Fails with `Errc::invalid_argument` for a rank, a signal or a context that is not there.
  Result<void> check(const SignalPlace& place) const;
  /// Copies to a peer's memory in the order of the stream, then adds a signal there. CPU ranks
  /// ignore the stream.
  Result<void> put(void* to, const void* from, std::size_t bytes, const SignalPlace& place,
                   cudaStream_t stream);
  /// Adds a signal at the peer, behind all earlier copies of the stream.
  Result<void> send(const SignalPlace& place, cudaStream_t stream);
  /// Waits for the next `times` signals of the peer: this thread on CPU ranks, else the stream.
  /// Fails with `Errc::timed_out` after CCL_TIMEOUT, with `Errc::peer_lost` if the peer has
  /// departed before it sent them, and as the communicator does. On a stream these are failures of
  /// the communicator.
  Result<void> wait(const SignalPlace& place, std::uint64_t times, cudaStream_t stream);

 private:
  Signals(Communicator comm, SharedMemory memory, Window window, int contexts, int signals)
      : comm_{std::move(comm)},
        memory_{std::move(memory)},
        window_{std::move(window)},
        contexts_{contexts},
        signals_{signals} {}
  /// Makes `work` a launch of the communicator. Its failure is one of the communicator on all
  /// ranks, because peers wait for signals without a limit.
  template <class Work>
  Result<void> queue(cudaStream_t stream, Work&& work);
  std::size_t count() const { return std::size_t(contexts_ * signals_ * comm_.ranks()); }
  std::uint64_t* counter(int at, int source, const SignalPlace& place) const;
  /// Returns the word of this rank that counts the blocks of a put.
  std::uint64_t* ended() const;
  Result<void> wait_on_host(const SignalPlace& place, std::uint64_t times) const;

  Communicator comm_;
  SharedMemory memory_;
  Window window_;
  int contexts_, signals_;
};

// Work on a GPU's stream; declared here, because only a library with device code has it.
/// Loads the kernels. The first launch of one would load it, and wait for kernels that run.
Result<void> load_signals_on_gpu();
/// Copies, then adds 1 to `counter`. A message of up to 2 MiB that is in the GPU's memory takes one
/// launch, others a copy of the driver before it. `ended`: a word of the GPU, which is 0 between
/// the puts of a communicator.
Result<void> put_on_gpu(void* to, const void* from, std::size_t bytes, std::uint64_t* counter,
                        std::uint64_t* ended, cudaStream_t stream);
Result<void> signal_on_gpu(std::uint64_t* counter, cudaStream_t stream);
/// The stream waits for signals of `peer`: see `wait_for_signals`.
Result<void> wait_on_gpu(const std::uint64_t* counter, std::uint64_t* taken, std::uint64_t times,
                         int peer, const AbortWatch& watch, cudaStream_t stream);

}  // namespace ccl::detail::nccl
