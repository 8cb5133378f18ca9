#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/detail/base/handle.hpp>
#include <ccl/comm/shared_memory.hpp>

#include <cuda/std/span>

#include <cstddef>
#include <memory>
#include <utility>

namespace ccl {
namespace detail {
struct WindowState;
/// Whether a window of the communicator holds these bytes of this rank.
bool lies_in_window(const Communicator& comm, const void* data, Index bytes);
}  // namespace detail

/// Memory of every rank, each of the same size, that all ranks can address: a GPU's memory from its
/// peers over NVLink or PCIe, by cuMem handles or legacy IPC; in one process, the memory itself. A
/// handle: copies share the registration, and captured graphs that use it keep it. Algorithms that
/// move a peer's data straight into place (`CopyEngine`) look up the windows of their communicator.
///
/// In which order things may end: the registration does not own memory that it was only told of. A
/// rank frees that after `close`, or after `Communicator::finalize`, and so after the last copy of
/// a peer. Destroying the last handle instead drops this rank's mappings, when the communicator's
/// calls here have run, and tells nobody; memory of `SharedMemory` then lives as long as its last
/// mapping. Kernels of the program's own that use a mapping must have ended before.
class Window {
 public:
  /// Registers `bytes` from `data` on. Collective, with the same `bytes` on all ranks: it succeeds
  /// on all or fails on all. On a GPU: memory of that GPU, of cudaMalloc, of cuMem handles made for
  /// file descriptors, or part of a `SharedMemory`; nobody else may use it during the call, which
  /// writes to its first word and puts that back. CPU ranks of other processes need `SharedMemory`.
  static Result<Window> create(const Communicator& comm, void* data, Index bytes);
  /// The same of memory that the window keeps.
  static Result<Window> create(const Communicator& comm, const SharedMemory& memory);

  Index bytes() const;
  int rank() const;
  int ranks() const;
  /// Where rank `rank`'s memory is here; of this rank, its own. Null after `close`, but for that,
  /// and of a window that was moved from.
  std::byte* at(int rank) const;
  template <class T>
  cuda::std::span<T> of(int rank) const {
    return {reinterpret_cast<T*>(at(rank)),
            at(rank) == nullptr ? 0 : std::size_t(bytes()) / sizeof(T)};
  }

  /// The graceful end, of all copies of the handle. Collective: waits for the communicator's calls
  /// of this rank, lets go of the peers' memory, and returns when all ranks have. Graphs and
  /// kernels of the program's own that use the window must have ended.
  Result<void> close() const;

 private:
  explicit Window(std::shared_ptr<detail::WindowState> state) : state_{std::move(state)} {}
  static std::shared_ptr<detail::WindowState> moved_from() noexcept;  // moved from
  detail::Handle<detail::WindowState, moved_from> state_;
};

}  // namespace ccl
