#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "gpu/driver.hpp"

namespace ccl::detail {

/// A process's stream for its own copies on one GPU, shared by its communicators there. A GPU has
/// few launch queues for all streams of a process. Work in the queue of a waiting kernel waits,
/// too.
class CopyStream {
 public:
  /// Returns the stream of the current context. The GPU's primary context must be current, as in
  /// all other calls and when the last handle is destroyed.
  static Result<std::shared_ptr<CopyStream>> of(const CudaDriver& driver);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  /// Returns when the copy is done. Any thread may call. The host's side must be pinned memory.
  Result<void> copy(void* to, const void* from, std::size_t bytes);
  Result<void> clear(void* at, std::size_t bytes);

 private:
  explicit CopyStream(const CudaDriver& driver) : driver_{driver} {}
  const CudaDriver& driver_;
  CUstream stream_ = nullptr;
  std::mutex mutex_;
};

}  // namespace ccl::detail
