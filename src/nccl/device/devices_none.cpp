#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/device/host_calls.hpp"

namespace ccl::detail::nccl {
namespace {

/// Memory that is allocated: what the program frees twice is no memory any more.
struct Allocated {
  std::set<const void*> all;
  ForkMutex mutex{[this] { renew(all); }};
};
Allocated& allocated() {
  static constinit MadeOnce<Allocated> one;
  return one.get();
}

}  // namespace

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
  constexpr std::size_t page = 4096;
  void* const memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  if (memory == nullptr) {
    return fail(Errc::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes");
  }
  const std::lock_guard lock{allocated().mutex};
  allocated().all.insert(memory);
  return memory;
}
Result<void> release(void* memory) {
  if (memory == nullptr) return {};
  {
    const std::lock_guard lock{allocated().mutex};
    if (allocated().all.erase(memory) == 0) {
      return fail(Errc::invalid_argument,
                  fmt::format("{} is no memory of ncclMemAlloc, or was freed already; free each "
                              "allocation once",
                              memory));
    }
  }
  std::free(memory);
  return {};
}

}  // namespace ccl::detail::nccl
