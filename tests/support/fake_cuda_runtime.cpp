#include "support/fake_cuda_runtime.hpp"

using namespace ccl::test::fake_runtime;

namespace {
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
  *device = ccl::test::fake_runtime::device;
  return called();
}
cudaError_t cudaSetDevice(int device) {
  if (fails == cudaSuccess) ccl::test::fake_runtime::device = device;
  return called();
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return called();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) {
  return called();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock{recorded.mutex};
  if (fails == cudaSuccess) recorded.all.emplace_back(event, stream);
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
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f, void* of) {
  if (fails == cudaSuccess) f(of);
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
