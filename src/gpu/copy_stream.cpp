#include "gpu/copy_stream.hpp"

#include <map>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"

namespace ccl::detail {

Result<std::shared_ptr<CopyStream>> CopyStream::of(const CudaDriver& driver) {
  struct Known {
    std::map<unsigned long long, std::weak_ptr<CopyStream>> by_context;
    ForkMutex mutex{[this] { renew(by_context); }};
  };
  static constinit MadeOnce<Known> one;
  Known* const known = &one.get();
  CUcontext context = nullptr;
  unsigned long long number = 0;
  CCL_CHECK(cuda_check(driver.ctx_get_current(&context), "ask for the context"));
  CCL_CHECK(cuda_check(driver.ctx_get_id(context, &number), "ask for the context's number"));
  const std::lock_guard lock{known->mutex};
  auto& slot = known->by_context[number];
  if (auto stream = slot.lock()) return stream;
  std::shared_ptr<CopyStream> made{new CopyStream{driver}};
  CCL_CHECK(
      cuda_check(driver.stream_create(&made->stream_, CU_STREAM_NON_BLOCKING), "make a stream"));
  slot = made;
  return made;
}

CopyStream::~CopyStream() {
  if (stream_ != nullptr) (void)driver_.stream_destroy(stream_);
}

Result<void> CopyStream::copy(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock{mutex_};
  CCL_CHECK(cuda_check(driver_.memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                                            reinterpret_cast<CUdeviceptr>(from), bytes, stream_),
                       "copy"));
  return cuda_check(driver_.stream_synchronize(stream_), "copy");
}

Result<void> CopyStream::clear(void* at, std::size_t bytes) {
  const std::lock_guard lock{mutex_};
  CCL_CHECK(cuda_check(driver_.memset_async(reinterpret_cast<CUdeviceptr>(at), 0, bytes, stream_),
                       "clear memory"));
  return cuda_check(driver_.stream_synchronize(stream_), "clear memory");
}

}  // namespace ccl::detail
