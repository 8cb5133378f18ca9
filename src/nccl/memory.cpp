// NCCL's memory, registrations and windows, and functions that ccl does not support.
#include <ccl/comm/window.hpp>

#include <memory>

#include "nccl/api.hpp"
#include "nccl/devices.hpp"

/// Target of NCCL's window.
struct ncclWindow_vidmem {
  ccl::Window window;
};

namespace ccl::detail::nccl {
namespace {

ncclResult_t absent(const char* what) {
  return answer([&]() -> Result<void> {
    return fail(Errc::not_supported, std::string{"ccl does not have "} + what);
  });
}

}  // namespace
}  // namespace ccl::detail::nccl

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
    CCL_TRY(*memory, allocate(bytes));
    return {};
  });
}
ncclResult_t ncclMemFree(void* memory) {
  return answer([&] { return release(memory); });
}

// ccl moves plain memory, so a registration does nothing.
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t, void** handle) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(handle, "handle"));
    CCL_TRY(const auto member, member_of(comm));
    *handle = memory;
    return {};
  });
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(const auto member, member_of(comm));
    return {};
  });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes, ncclWindow_t* made,
                                    int) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(made, "win"));
    *made = nullptr;
    CCL_TRY(auto member, member_of(comm));
    Member& whose = *member;
    return Group::of_this_thread().submit(std::move(member), [=, &whose]() -> ccl::Result<void> {
      CCL_TRY(const auto ready, whose.ready());
      CCL_TRY(auto window, ccl::Window::create(ready, memory, ccl::Index(bytes)));
      *made = new ncclWindow_vidmem{std::move(window)};
      return {};
    });
  });
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return answer([&]() -> ccl::Result<void> {
    CCL_TRY(auto member, member_of(comm));
    if (window == nullptr) return {};
    return Group::of_this_thread().submit(std::move(member), [window]() -> ccl::Result<void> {
      const std::unique_ptr<ncclWindow_vidmem> owned{window};
      return owned->window.close();
    });
  });
}

ncclResult_t ncclDevCommCreate(ncclComm_t, const void*, void*) {
  return absent("NCCL's device interface; write the kernel's part as an algorithm of ccl's");
}
ncclResult_t ncclDevCommDestroy(ncclComm_t, const void*) {
  return absent("NCCL's device interface");
}

CCL_NCCL_ALSO_P(ncclMemAlloc);
CCL_NCCL_ALSO_P(ncclMemFree);
CCL_NCCL_ALSO_P(ncclCommRegister);
CCL_NCCL_ALSO_P(ncclCommDeregister);
CCL_NCCL_ALSO_P(ncclCommWindowRegister);
CCL_NCCL_ALSO_P(ncclCommWindowDeregister);
CCL_NCCL_ALSO_P(ncclDevCommCreate);
CCL_NCCL_ALSO_P(ncclDevCommDestroy);
