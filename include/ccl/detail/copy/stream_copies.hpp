#pragma once

#include <ccl/detail/copy/work.hpp>
#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>
#include <vector>

struct CUstream_st;  // of CUDA: cudaStream_t points to it

namespace ccl::detail {

class Connections;
struct SideBranch;

/// Copies of `CopyEngine` between this rank's and its peers' memory, on the stream of a launch and
/// on a branch of that stream. A view: the composition must outlive it.
class StreamCopies {
 public:
  explicit StreamCopies(Connections& of) : of_{of} {}

  /// Creates the branch that `fork` usually needs. Collective. `pulls`: copies will read peers'
  /// scratch.
  Result<void> open_branch(bool pulls);
  /// Creates the signals that `signal` needs. Collective.
  Result<void> open_signals();

  // Between the begin and the end of a launch.
  Result<void> copy(void* to, const void* from, Index bytes, CUstream_st* stream) const;
  /// Branches off `stream`. Returns the branch, which runs beside `stream` until `join`.
  Result<CUstream_st*> fork(CUstream_st* stream);
  Result<void> join(CUstream_st* stream);
  /// Posts and awaits as the kernel of a `CopySync` does, without a kernel.
  Result<void> signal(const CopySync& sync, CUstream_st* stream) const;

  /// Place of a buffer in a window, which is the same at every rank.
  struct InWindow {
    Word place = 0;  // `WindowPlaceWord`
    Index offset = 0;
    std::vector<std::byte*> at;         // begin of the window at each rank; empty: in no window
    std::shared_ptr<const void> keep;   // must live as long as copies may run
    std::shared_ptr<const void> holds;  // keeps the mappings while copies are queued: a close waits
    char* of(int rank) const { return reinterpret_cast<char*>(at[std::size_t(rank)] + offset); }
    explicit operator bool() const { return !at.empty(); }
  };
  InWindow in_window(const void* data, Index bytes) const;
  /// True if ranks may have buffers in windows: some were created and are not closed. Equal on all
  /// ranks, also after a rank has dropped its handle.
  bool may_be_in_windows() const;

 private:
  Connections& of_;
  SideBranch* side_ = nullptr;  // of the latest fork
};

}  // namespace ccl::detail
