#pragma once

// CUDA runtime of tests, in place of the real one: calls have no effect but those below.
#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>
#include <vector>

namespace ccl::test::fake_runtime {

inline thread_local cudaError_t last = cudaSuccess;  // what cudaGetLastError returns
inline thread_local int device = 0;                  // of the thread
inline cudaError_t fails = cudaSuccess;              // result of all calls

/// Events that were recorded, in order, with their streams.
struct Recorded {
  std::mutex mutex;
  std::vector<std::pair<cudaEvent_t, cudaStream_t>> all;
};
inline Recorded recorded;

}  // namespace ccl::test::fake_runtime
