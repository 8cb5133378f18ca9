// What the library leaves in the CUDA runtime's last error. The runtime is that of this test.
#include "nccl/device/devices.hpp"

#include <cuda_runtime_api.h>

#include <utility>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail::nccl;

namespace {
cudaError_t last = cudaSuccess;   // of the thread
cudaError_t fails = cudaSuccess;  // the calls below

cudaError_t called() {
  if (fails != cudaSuccess) last = fails;
  return fails;
}
}  // namespace

extern "C" {
cudaError_t cudaGetLastError() {
  return std::exchange(last, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t) {
  return "of this test";
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return called();
}
cudaError_t cudaSetDevice(int) {
  return called();
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return called();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) {
  return called();
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return called();
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return called();
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return called();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return called();
}
cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) {
  return called();
}
cudaError_t cudaMallocAsync(void**, std::size_t, cudaStream_t) {
  return called();
}
cudaError_t cudaFreeAsync(void*, cudaStream_t) {
  return called();
}
cudaError_t cudaMalloc(void**, std::size_t) {
  return called();
}
cudaError_t cudaFree(void*) {
  return called();
}
}

TEST_CASE("a failed call of the CUDA runtime is reported and leaves no error behind") {
  for (const cudaError_t code : {cudaErrorInvalidDevice, cudaErrorMemoryAllocation}) {
    fails = code;
    CHECK(current_device() == -1);
    CHECK(last == cudaSuccess);
    CHECK(!set_device(7));
    CHECK(last == cudaSuccess);
    CHECK(!allocate(1));
    CHECK(last == cudaSuccess);
    CHECK(!put_after(nullptr, nullptr));
    CHECK(last == cudaSuccess);
  }
}

TEST_CASE("a stream is captured if its work goes into a graph") {
  const auto captured = reinterpret_cast<cudaStream_t>(8);
  fails = cudaSuccess;
  CHECK_FALSE(is_capturing(nullptr));
  CHECK(is_capturing(captured));
  fails = cudaErrorStreamCaptureImplicit;
  CHECK_FALSE(is_capturing(captured));
  CHECK(last == cudaSuccess);
}

TEST_CASE("an error that the program has left stays through calls that succeed") {
  fails = cudaSuccess;
  last = cudaErrorInvalidValue;
  CHECK(current_device() == 0);
  CHECK(set_device(0));
  CHECK(allocate(1));
  CHECK(release(nullptr));
  CHECK(copy(nullptr, nullptr, 0, nullptr));
  CHECK(last == cudaErrorInvalidValue);
}
