// NCCL's memory and registrations.
#include <string>

#include "nccl/api.hpp"
#include "nccl/device/allocations.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/device/host_memory.hpp"

using namespace ccl::detail::nccl;

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(memory, "ptr"));
    *memory = nullptr;
    constexpr std::size_t most = std::size_t{1} << 56;  // no address space is larger
    if (bytes > most) {
      return ccl::fail(ccl::Errc::invalid_argument,
                       std::to_string(bytes) + " bytes are more than memory has");
    }
    if (bytes == 0) return {};
    const int device = current_device();
    CCL_TRY(*memory, device >= 0 ? allocate_shareable(device, bytes) : allocate_on_host(bytes));
    return {};
  });
}
ncclResult_t ncclMemFree(void* memory) {
  return answer([&]() -> ccl::Result<void> {
    if (release_shareable(memory)) return {};
    if (host_block_begins(memory) || current_device() < 0) return release_on_host(memory);
    return release(memory);  // of cudaMalloc
  });
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(handle, "handle"));
    *handle = nullptr;
    CCL_TRY(const auto member, member_of(comm));
    CCL_TRY(*handle, member->add_memory(memory, bytes));
    return {};
  });
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    return member->drop_memory(handle);
  });
}

CCL_NCCL_ALSO_P(ncclMemAlloc);
CCL_NCCL_ALSO_P(ncclMemFree);
CCL_NCCL_ALSO_P(ncclCommRegister);
CCL_NCCL_ALSO_P(ncclCommDeregister);
