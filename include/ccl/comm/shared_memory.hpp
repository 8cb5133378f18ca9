#pragma once

#include <ccl/comm/communicator.hpp>

#include <cstddef>
#include <memory>

namespace ccl {
namespace detail {
struct SharedBlock;
}

/// Memory that ranks of other processes can map: on the communicator's GPU, or on this host. GPU
/// memory has cuMem handles; it comes from cudaMalloc if the GPU has none or CCL_CUMEM_ENABLE is 0.
///
/// The object owns the memory: copies share it, and windows made of it keep it alive. A peer's
/// mapping keeps cuMem and host memory alive too, so owner and mapping may end in any order.
class SharedMemory {
 public:
  /// Allocates `bytes` of zeroed memory. Not collective: every rank allocates its own. The memory
  /// does not count against the memory budget. Fails with `Errc::invalid_argument` if `bytes` is
  /// not positive.
  [[nodiscard]] static Result<SharedMemory> allocate(const Communicator& comm, Index bytes);

  /// Returns the address of the memory, or null in a moved-from object.
  std::byte* data() const;
  /// Returns the requested bytes.
  Index bytes() const;
  /// Returns the address of the memory as a pointer to `T`.
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
