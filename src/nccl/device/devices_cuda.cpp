#include <cuda_runtime.h>

#include <fmt/format.h>

#include "nccl/device/devices.hpp"
#include "nccl/device/host_calls.hpp"

namespace ccl::detail::nccl {

Result<void> check_cuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  (void)cudaGetLastError();  // reported here, so cleared for the next caller
  Error error{Errc::cuda, fmt::format("{} failed ({})", what, cudaGetErrorString(code))};
  error.os_code = int(code);
  return fail(std::move(error));
}

int current_device() {
  int device = -1;
  return check_cuda(cudaGetDevice(&device), "cudaGetDevice") ? device : -1;
}
Result<void> set_device(int device) {
  const cudaError_t code = cudaSetDevice(device);
  if (code == cudaErrorInvalidDevice) {
    int count = 0;
    (void)check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    (void)cudaGetLastError();
    return fail(
        Errc::invalid_argument,
        fmt::format("there is no device {}; there are {} (CUDA_VISIBLE_DEVICES)", device, count));
  }
  return check_cuda(code, "cudaSetDevice");
}
Result<void> put_after(cudaStream_t later, cudaStream_t earlier) {
  cudaEvent_t event = nullptr;
  CCL_CHECK(
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate"));
  auto done = check_cuda(cudaEventRecord(event, earlier), "cudaEventRecord");
  if (done) done = check_cuda(cudaStreamWaitEvent(later, event, 0), "cudaStreamWaitEvent");
  (void)cudaEventDestroy(event);  // exists until it has happened
  return done;
}
bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  // The call fails for the default stream while another one is captured.
  if (!check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing")) return false;
  return status == cudaStreamCaptureStatusActive;
}
Result<void> record(cudaEvent_t event, cudaStream_t stream) {
  return check_cuda(cudaEventRecord(event, stream), "cudaEventRecord of launchCompletionEvent");
}
Result<void> call_behind(cudaStream_t stream, void (*f)(void*), void* of) {
  return check_cuda(cudaLaunchHostFunc(stream, f, of), "cudaLaunchHostFunc");
}
Result<void> copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  return check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}
Result<void*> allocate_on(std::size_t bytes, cudaStream_t stream) {
  void* memory = nullptr;
  CCL_CHECK(check_cuda(cudaMallocAsync(&memory, bytes, stream), "cudaMallocAsync"));
  return memory;
}
Result<void> release_on(void* memory, cudaStream_t stream) {
  return check_cuda(cudaFreeAsync(memory, stream), "cudaFreeAsync");
}
Result<void*> allocate(std::size_t bytes) {
  // Whole pages of the GPU, so that peers can map it (see Window).
  constexpr std::size_t page = std::size_t{2} << 20;
  void* memory = nullptr;
  CCL_CHECK(check_cuda(cudaMalloc(&memory, (bytes + page - 1) / page * page), "cudaMalloc"));
  return memory;
}
Result<void> release(void* memory) {
  return check_cuda(cudaFree(memory), "cudaFree");
}

}  // namespace ccl::detail::nccl
