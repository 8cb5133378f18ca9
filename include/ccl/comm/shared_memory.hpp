#pragma once

#include <ccl/comm/communicator.hpp>

#include <cstddef>
#include <memory>

namespace ccl {
namespace detail {
struct SharedBlock;
}

/// Memory that ranks of other processes can map: on the communicator's GPU, of cuMem handles (where
/// the GPU has none, or CCL_CUMEM_ENABLE is 0, of cudaMalloc), or of this host. An owner: copies
/// share it, and windows made of it keep it; a peer's mapping keeps cuMem and host memory, too, so
/// that the last of them may go in any order.
class SharedMemory {
 public:
  /// Zeroed. Not collective: every rank makes its own. Not counted in the memory budget.
  static Result<SharedMemory> allocate(const Communicator& comm, Index bytes);

  std::byte* data() const;
  Index bytes() const;  // as asked for
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }

  const std::shared_ptr<detail::SharedBlock>& block() const { return block_; }

 private:
  explicit SharedMemory(std::shared_ptr<detail::SharedBlock> block) : block_{std::move(block)} {}
  std::shared_ptr<detail::SharedBlock> block_;
};

}  // namespace ccl
