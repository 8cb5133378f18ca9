#include <cstdlib>
#include <cstring>
#include <string>

#include "nccl/device/devices.hpp"
#include "nccl/device/host_calls.hpp"

namespace ccl::detail::nccl {
int current_device() {
  return -1;
}
Result<void> set_device(int) {
  return {};
}
Result<void> put_after(cudaStream_t, cudaStream_t) {
  return {};  // calls block
}
bool is_capturing(cudaStream_t) {
  return false;
}
Result<void> record(cudaEvent_t, cudaStream_t) {
  return {};
}
Result<void> call_behind(cudaStream_t, void (*f)(void*), void* of) {
  f(of);  // calls block
  return {};
}
Result<void> copy(void* to, const void* from, std::size_t bytes, cudaStream_t) {
  std::memmove(to, from, bytes);
  return {};
}
Result<void*> allocate_on(std::size_t bytes, cudaStream_t) {
  return allocate(bytes);
}
Result<void> release_on(void* memory, cudaStream_t) {
  return release(memory);
}
Result<void*> allocate(std::size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) {
    return fail(Errc::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes");
  }
  return memory;
}
Result<void> release(void* memory) {
  std::free(memory);
  return {};
}

}  // namespace ccl::detail::nccl
