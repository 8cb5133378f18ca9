#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "gpu/driver.hpp"

namespace ccl::detail {

/// A process's stream for its own copies on one GPU. One for all its communicators there: a GPU has
/// a few queues of launches for all streams of a process, and what shares one with a kernel that
/// waits, waits as well.
class CopyStream {
 public:
  /// With the GPU's primary context current, as in all other calls, the last handle's end among
  /// them.
  static Result<std::shared_ptr<CopyStream>> of(const CudaDriver& driver);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  /// Return when it is done. Any thread. The host's side is pinned memory.
  Result<void> copy(void* to, const void* from, std::size_t bytes);
  Result<void> clear(void* at, std::size_t bytes);

 private:
  explicit CopyStream(const CudaDriver& driver) : driver_{driver} {}
  const CudaDriver& driver_;
  CUstream stream_ = nullptr;
  std::mutex mutex_;
};

}  // namespace ccl::detail
