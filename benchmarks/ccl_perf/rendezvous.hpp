#pragma once

#include <atomic>
#include <memory>

#include "gpu.hpp"

namespace ccl::perf {

/// Barrier for the ranks of one group, threads or processes. It owns shared memory that is
/// allocated before they are forked.
class Rendezvous {
 public:
  static Result<std::unique_ptr<Rendezvous>> create(int ranks);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Blocks until all ranks have called it, or fails at the deadline.
  Result<void> meet(double deadline_s);
  gpu::StartGate& gate() { return shared_->gate; }

 private:
  struct Shared {
    alignas(4096) gpu::StartGate gate;  // on a page of its own, which GPUs map
    alignas(4096) std::atomic<unsigned> arrived{0};
    alignas(128) std::atomic<unsigned> round{0};
  };
  Rendezvous(Shared* shared, int ranks) : shared_{shared}, ranks_{unsigned(ranks)} {}

  Shared* shared_;
  unsigned ranks_;
};

}  // namespace ccl::perf
