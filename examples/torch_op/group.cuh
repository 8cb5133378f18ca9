#pragma once

// The ranks of kernels that communicate, behind a C interface, which group.py calls. One source of
// a library includes it.
#include <ccl/device.cuh>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace example {

inline thread_local std::string last_error;
inline int answer(const ccl::Result<void>& result) {
  if (!result) last_error = result.error().message();
  return result ? 0 : 1;
}

/// Group of ranks, on one of them, whose kernels share a window.
struct Group {
  ccl::Communicator comm;
  ccl::Window window;
  ccl::DeviceComm device;
  std::shared_ptr<void> team;  // in memory of the GPU, for kernels that take an address
  static ccl::Result<Group> create(const ccl::UniqueId& id, int rank, int ranks, int gpu,
                                   ccl::Index window_bytes, const ccl::DeviceRequirements& needs) {
    ccl::Config config;
    config.device = gpu;
    CCL_TRY(auto comm, ccl::Communicator::create(id, rank, ranks, config));
    cudaSetDevice(gpu);
    CCL_TRY(const auto memory, ccl::SharedMemory::allocate(comm, window_bytes));
    CCL_TRY(auto window, ccl::Window::create(comm, memory));
    CCL_TRY(auto device, ccl::DeviceComm::create(comm, window, needs));
    return Group{std::move(comm), std::move(window), std::move(device), nullptr};
  }
};

/// Returns the group of this rank, or null. All ranks call it.
inline Group* make_group(const char* id, int rank, int ranks, int gpu, ccl::Index window_bytes,
                         const ccl::DeviceRequirements& needs) {
  const auto make = [&]() -> ccl::Result<Group*> {
    CCL_TRY(const auto unique, ccl::UniqueId::from_string(id));
    CCL_TRY(auto group, Group::create(unique, rank, ranks, gpu, window_bytes, needs));
    return new Group{std::move(group)};
  };
  const auto made = make();
  if (made) return *made;
  last_error = made.error().message();
  return nullptr;
}

}  // namespace example

extern "C" {

/// Returns the text of the last failure of this thread.
[[gnu::used]] inline const char* group_error() {
  return example::last_error.c_str();
}

/// Writes 256 hexadecimal digits and a zero, for all ranks of one group.
[[gnu::used]] inline int group_id(char* text) {
  const auto id = ccl::create_unique_id();
  if (!id) return example::answer(ccl::fail(id.error()));
  std::strcpy(text, id->to_string().c_str());
  return 0;
}

/// Returns the failure of a kernel or of another rank, if there is one.
[[gnu::used]] inline int group_status(void* group) {
  return example::answer(static_cast<example::Group*>(group)->device.status());
}

/// Ends the group. All ranks call it, after their kernels.
[[gnu::used]] inline int group_destroy(void* group) {
  const std::unique_ptr<example::Group> owned{static_cast<example::Group*>(group)};
  if (const auto closed = owned->device.close(); !closed) return example::answer(closed);
  if (const auto closed = owned->window.close(); !closed) return example::answer(closed);
  return example::answer(owned->comm.finalize());
}
}
