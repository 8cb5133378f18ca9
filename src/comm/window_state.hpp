#pragma once

#include <ccl/comm/communicator.hpp>

#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "base/mapping.hpp"
#include "gpu/memory.hpp"

namespace ccl::detail {

/// On a GPU `gpu`, else the mapping of `file`.
struct SharedBlock {
  GpuBlock gpu;
  Mapping host;
  Fd file;
  Index bytes = 0;
  std::byte* data() const { return gpu.memory ? gpu.at() : host.base(); }
};

/// What all handles of one rank's window share.
struct WindowState {
  explicit WindowState(Communicator of) : comm{std::move(of)} {}
  ~WindowState();
  WindowState(const WindowState&) = delete;
  WindowState& operator=(const WindowState&) = delete;

  Communicator comm;
  Word number = 0;  // from 1 on, the same on all ranks
  std::byte* base = nullptr;
  Index bytes = 0;
  std::vector<std::byte*> at;  // of each rank, as seen here
  struct Holds {
    std::vector<GpuBlock> gpu;
    std::vector<Mapping> host;
    std::shared_ptr<SharedBlock> own;
  };
  std::shared_ptr<Holds> holds = std::make_shared<Holds>();
};

/// The window of this communicator that holds `bytes` from `data` on; null if none does.
std::shared_ptr<const WindowState> find_window(CommState& state, const void* data, Index bytes);
/// The one of that number; null if it is closed, or not yet made here.
std::shared_ptr<const WindowState> find_window(CommState& state, Word number);

}  // namespace ccl::detail
