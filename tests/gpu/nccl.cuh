#pragma once

// NCCL's C interface on GPUs, for tests: a call that fails ends the process.
#include <functional>

#include "communicator.cuh"
#ifndef NCCL_MAJOR  // of NVIDIA's header, which a test may include before
#  include "nccl/abi/abi.hpp"
#endif

namespace ccl::test {

inline void must_nccl(ncclResult_t done, const char* what, int line) {
  if (done == ncclSuccess) return;
  std::printf("line %d: %s: %s\n", line, what, ncclGetLastError(nullptr));
  std::fflush(stdout);
  std::_Exit(1);
}
#define MUST_NCCL(call) ::ccl::test::must_nccl((call), #call, __LINE__)

/// Runs `body` with each rank in a process of its own, and waits for all.
inline void fork_ranks(int count, const std::function<void(int)>& body) {
  std::vector<pid_t> children;
  for (int r = 0; r < count; ++r) {
    const pid_t child = ::fork();
    if (child == 0) {
      body(r);
      std::fflush(stdout);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a process ended with %d", status);
  }
}

}  // namespace ccl::test
