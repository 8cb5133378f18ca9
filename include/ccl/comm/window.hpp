#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/shared_memory.hpp>
#include <ccl/detail/base/handle.hpp>

#include <cuda/std/span>

#include <cstddef>
#include <memory>
#include <utility>

namespace ccl {
namespace detail {
struct WindowState;
/// True if a window of the communicator contains these bytes of this rank.
bool lies_in_window(const Communicator& comm, const void* data, Index bytes);
}  // namespace detail

/// Ranks whose memory a window maps. Must be equal on all ranks.
enum class WindowReach {
  all,  ///< all ranks; `create` fails if one cannot be mapped
  near  ///< those of this host, and those that one NVLink domain joins; `at` of the others is null
};

/// Memory of every rank, of equal size, that all ranks can address. Peers access a GPU's memory
/// over NVLink or PCIe, through cuMem handles or legacy IPC; ranks of one process access it
/// directly. It is a handle: copies share the registration, and captured graphs that use it keep
/// it. Algorithms that write directly into a peer's buffer (`CopyEngine`) look up the windows of
/// their communicator.
///
/// The registration does not own memory passed to `create` as a pointer. The rank may free it after
/// `close` or `Communicator::finalize`, which follow the last copy of a peer. The destructor of the
/// last handle only unmaps this rank's mappings, after the communicator's calls on this rank have
/// completed. Memory of `SharedMemory` then lives as long as its last mapping. The program's own
/// kernels that use a mapping must have ended before.
class Window {
 public:
  /// Registers `bytes` bytes from `data` on. Collective, with the same `bytes` on all ranks; it
  /// succeeds on all or fails on all. The memory of a GPU rank must be one of these:
  /// - memory of that GPU from cudaMalloc; not across hosts.
  /// - memory of cuMem handles that export file descriptors to ranks of this host, and fabric
  ///   handles to those of other hosts in the NVLink domain.
  /// - part of a `SharedMemory`.
  /// The call does not access the memory. CPU ranks of other processes require `SharedMemory`.
  [[nodiscard]] static Result<Window> create(const Communicator& comm, void* data, Index bytes,
                                             WindowReach reach = WindowReach::all);
  /// Registers memory that the window keeps alive.
  [[nodiscard]] static Result<Window> create(const Communicator& comm, const SharedMemory& memory,
                                             WindowReach reach = WindowReach::all);

  /// Returns the bytes of each rank's memory.
  Index bytes() const;
  /// Returns this rank.
  int rank() const;
  /// Returns the number of ranks.
  int ranks() const;
  /// Returns the address of rank `rank`'s memory in this process. After `close` only this rank's
  /// own address is left, and the others are null. All are null in a moved-from window. With
  /// `WindowReach::near`, those of ranks that are not near are null.
  std::byte* at(int rank) const;
  /// Returns the memory of rank `rank` as elements of `T`; empty if `at(rank)` is null.
  template <class T>
  cuda::std::span<T> of(int rank) const {
    return {reinterpret_cast<T*>(at(rank)),
            at(rank) == nullptr ? 0 : std::size_t(bytes()) / sizeof(T)};
  }

  /// Ends the registration of all copies of the handle gracefully. Collective: waits for this
  /// rank's calls of the communicator, unmaps the peers' memory, and returns when all ranks have
  /// done so. Graphs and the program's own kernels that use the window must have ended.
  [[nodiscard]] Result<void> close() const;

 private:
  friend struct detail::WindowState;
  explicit Window(std::shared_ptr<detail::WindowState> state) : state_{std::move(state)} {}
  static std::shared_ptr<detail::WindowState> moved_from();  // state of moved-from handles
  detail::Handle<detail::WindowState, moved_from> state_;
};

}  // namespace ccl
