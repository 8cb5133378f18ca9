#pragma once

// NCCL's C interface on GPUs, for tests: a call that fails ends the process.
#include "communicator.cuh"
#include "nccl/abi/abi.hpp"

namespace ccl::test {

inline void must_nccl(ncclResult_t done, const char* what, int line) {
  if (done == ncclSuccess) return;
  std::printf("line %d: %s: %s\n", line, what, ncclGetLastError(nullptr));
  std::fflush(stdout);
  std::_Exit(1);
}
#define MUST_NCCL(call) ::ccl::test::must_nccl((call), #call, __LINE__)

}  // namespace ccl::test
