#include <cstdlib>

#include "nccl/devices.hpp"

namespace ccl::detail::nccl {

int current_device() {
  return -1;
}
Result<void> set_device(int) {
  return {};
}
Result<void> wait_for_device() {
  return {};
}
Result<void> put_after(cudaStream_t, cudaStream_t) {
  return {};  // calls block
}
Result<void*> allocate(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  void* const memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
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
