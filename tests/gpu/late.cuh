#pragma once

// Waits that end, for tests of ranks that are late or never call.
#include <chrono>

#include "communicator.cuh"

namespace ccl::test {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Ends the process if the stream does not complete.
inline void drain(cudaStream_t stream, double within_s) {
  const double end = now_s() + within_s;
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
    if (now_s() > end) {
      std::printf("WRONG: a stream waits for more than %.0f s\n", within_s);
      std::fflush(stdout);
      std::_Exit(3);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  check(cudaStreamQuery(stream) == cudaSuccess, "the stream has failed");
}

/// The first failure of the communicator, waited for.
inline Result<void> failure(const Communicator& comm, double within_s) {
  const double end = now_s() + within_s;
  Result<void> status;
  while ((status = comm.status()) && now_s() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return status;
}

/// A communicator of the same ranks and GPUs with a limit of its own; 0: none.
inline Communicator with_timeout(const Communicator& whole, double timeout_s) {
  Config config;
  config.timeout_s = timeout_s;
  config.device = whole.device();
  return must(whole.split(0, whole.rank(), config)).value();
}

}  // namespace ccl::test
