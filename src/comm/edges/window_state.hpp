#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>
#include <vector>

#include "base/io/fd.hpp"
#include "base/io/mapping.hpp"
#include "gpu/memory.hpp"

namespace ccl::detail {

/// Shared memory: `gpu` on a GPU, else `host`, the mapping of `file`.
struct SharedBlock {
  GpuBlock gpu;
  Mapping host;
  Fd file;
  Index bytes = 0;
  std::byte* data() const { return gpu.memory ? gpu.at() : host.base(); }
};

/// State that all handles of one rank's window share.
struct WindowState : std::enable_shared_from_this<WindowState> {
  explicit WindowState(Communicator of) : comm{std::move(of)} {}
  ~WindowState();
  WindowState(const WindowState&) = delete;
  WindowState& operator=(const WindowState&) = delete;

  Communicator comm;
  Word number = 0;  // starts at 1, equal on all ranks
  std::byte* base = nullptr;
  Index bytes = 0;
  std::vector<std::byte*> at;  // address of each rank's memory in this process
  struct Holds {
    std::vector<GpuBlock> gpu;
    std::vector<Mapping> host;
    std::shared_ptr<SharedBlock> own;
  };
  std::shared_ptr<Holds> holds = std::make_shared<Holds>();
};

/// Returns the window of this communicator that contains `bytes` bytes at `data`, or null. Only for
/// threads that hold the communicator otherwise, because the last owner of a window drops it.
std::shared_ptr<const WindowState> find_window(CommState& state, const void* data, Index bytes);

/// Window as the threads of the communicator see it. They must not own one: its end may be that of
/// the communicator, which waits for these threads.
struct WindowFacts {
  Word number = 0;  // 0: no such window
  std::byte* base = nullptr;
  Index bytes = 0;
};
/// Returns the open window that contains `bytes` bytes at `data`. Any thread.
WindowFacts window_around(CommState& state, const void* data, Index bytes);
/// Mapping of a window's part.
struct WindowMapping {
  std::shared_ptr<WindowState::Holds> holds;  // keeps it; null: closed, or not created here yet
  std::byte* at = nullptr;
};
/// Returns the part of `rank` in the window of that number. Any thread.
WindowMapping window_mapping(CommState& state, Word number, int rank);

}  // namespace ccl::detail
