#pragma once

#include <ccl/comm/communicator.hpp>

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace ccl::test {

inline int devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  return count;
}

inline Result<void> good(cudaError_t code) {
  if (code == cudaSuccess) return {};
  return fail(Errc::cuda, cudaGetErrorString(code));
}

/// f(communicator) on every GPU, each in a thread of its own.
inline void on_gpus(int ranks, const std::function<Result<void>(const Communicator&)>& f) {
  auto comms = Communicator::create_all(ranks);
  REQUIRE(comms);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto run = [&]() -> Result<void> {
        CCL_CHECK(good(cudaSetDevice((*comms)[r].device())));
        return f((*comms)[r]);
      };
      if (const auto done = run(); !done) errors[std::size_t(r)] = done.error().message();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) CHECK(error == "");
}

}  // namespace ccl::test
