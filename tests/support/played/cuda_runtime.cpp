// The functions of the CUDA runtime that ccl's headers call, over the played driver.
#include <cuda_runtime_api.h>

#include "support/fake_gpus.hpp"

using namespace ccl::test;

cudaError_t cudaGetDevice(int* device) {
  *device = fake::current() < 0 ? 0 : fake::current();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  auto& stack = fake::contexts();
  if (stack.empty()) {
    stack.push_back(device);
  } else {
    stack.back() = device;
  }
  return cudaSuccess;
}
