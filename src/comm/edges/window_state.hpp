#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/window.hpp>
#include <ccl/transport/transport.hpp>

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

/// Addresses by which lanes reach a window of all ranks by multicast.
struct BoundPart {
  MulticastKind kind = MulticastKind::none;  // none: multicast does not reach the window
  Packet* const* each = nullptr;             // begin of the window at each rank, for lanes
  Word all = 0;                              // its multicast address; 0: it is emulated
  std::shared_ptr<void> owner{};
};

/// State that all handles of one rank's window share.
struct WindowState : std::enable_shared_from_this<WindowState> {
  explicit WindowState(Communicator of) : comm{std::move(of)} {}
  ~WindowState();
  static const WindowState& of(const Window& window);
  /// Creates a window of memory that lies in `block`. Collective: see `Window::create`.
  static Result<Window> create_in(const Communicator& comm, std::byte* data, Index bytes,
                                  std::shared_ptr<SharedBlock> block);
  /// Says that no call of the communicator has a buffer in this window, which `Observers` then does
  /// not count. All ranks call it.
  static void hold_no_buffers(const Window& window);
  WindowState(const WindowState&) = delete;
  WindowState& operator=(const WindowState&) = delete;

  Communicator comm;
  Word number = 0;  // starts at 1, equal on all ranks
  std::byte* base = nullptr;
  Index bytes = 0;
  WindowReach reach = WindowReach::all;
  bool counted = false;        // among the open windows of `Observers`
  std::vector<std::byte*> at;  // address of each rank's memory in this process
  struct Holds {
    std::vector<GpuBlock> gpu;
    std::vector<Mapping> host;
    std::shared_ptr<SharedBlock> own;
    std::vector<BoundPart> bound;  // ends first; guarded by the lock of the windows
  };
  std::shared_ptr<Holds> holds = std::make_shared<Holds>();
};

/// Place of a buffer in a window.
struct WindowPlace {
  std::shared_ptr<const WindowState> window;        // null: in no window
  std::shared_ptr<const WindowState::Holds> holds;  // keeps the mappings, also after a close
  std::vector<std::byte*> at;                       // address of the window at each rank
  Index offset = 0;                                 // of the buffer in the window
};
/// Returns the place of `bytes` bytes at `data` in an open window of this communicator. Only for
/// threads that hold the communicator otherwise, because the last owner of a window drops it.
WindowPlace place_in_window(CommState& state, const void* data, Index bytes);
/// Place of a buffer in a window that multicast may reach.
struct BoundWindow {
  Word number = 0;  // 0: in no window
  Index offset = 0;
  BoundPart part{};
  std::shared_ptr<const WindowState::Holds> holds{};  // null: multicast does not reach the window
};
/// Returns the place of `bytes` bytes at `data`. For the threads of `place_in_window`.
BoundWindow bound_window(CommState& state, MulticastKind kind, const void* data, Index bytes);
/// Returns the open window of that number, or null if this rank has dropped it.
std::shared_ptr<WindowState> live_window(CommState& state, Word number);
/// True if this is an open window of the communicator. Any thread.
bool is_open_window(const Communicator& comm, const Window& window);

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
