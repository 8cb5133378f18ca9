// The functions of the CUDA runtime that ccl's headers call, over the played driver.
#include <cuda_runtime_api.h>

#include <utility>

#include "support/fake_gpus.hpp"
#include "support/played/streams.hpp"

using namespace ccl::test;

cudaError_t cudaGetDevice(int* device) {
  *device = fake::current() < 0 ? 0 : fake::current();
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaError_t(std::exchange(played::last_error, CUDA_SUCCESS));
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
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  if (which != cudaDevAttrComputeCapabilityMajor) return cudaErrorInvalidValue;
  *value = played::capability() / 10;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
