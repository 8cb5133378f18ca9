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
struct WindowState {
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

/// Returns the window of this communicator that contains `bytes` bytes at `data`, or null.
std::shared_ptr<const WindowState> find_window(CommState& state, const void* data, Index bytes);
/// Returns the window of that number; null if it is closed or not created on this rank yet.
std::shared_ptr<const WindowState> find_window(CommState& state, Word number);

}  // namespace ccl::detail
