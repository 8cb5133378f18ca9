#include "gpu/pinned.hpp"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"

namespace ccl::detail {
namespace {

struct Spare {
  using Key = std::pair<unsigned long long, std::size_t>;  // context and bytes
  std::map<Key, std::vector<void*>> pages;
  ForkMutex mutex{[this] { renew(pages); }};
  static Spare& instance() {
    static constinit MadeOnce<Spare> one;
    return one.get();
  }
};

}  // namespace

Result<Pinned> Pinned::take(const CudaDriver& cuda, std::size_t bytes) {
  Pinned made;
  CUcontext context = nullptr;
  CCL_CHECK(cuda_check(cuda.ctx_get_current(&context), "ask for the context"));
  CCL_CHECK(cuda_check(cuda.ctx_get_id(context, &made.context_), "ask for the context's number"));
  made.bytes_ = bytes;
  {
    Spare& spare = Spare::instance();
    const std::lock_guard lock{spare.mutex};
    auto& pages = spare.pages[{made.context_, bytes}];
    if (!pages.empty()) {
      made.at_ = pages.back();
      pages.pop_back();
    }
  }
  if (made.at_ == nullptr) {
    CCL_CHECK(cuda_check(
        cuda.mem_host_alloc(&made.at_, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        fmt::format("allocate {} bytes of pinned memory", bytes)));
  }
  std::memset(made.at_, 0, bytes);
  return made;
}

Pinned::~Pinned() {
  if (at_ == nullptr) return;
  Spare& spare = Spare::instance();
  const std::lock_guard lock{spare.mutex};
  spare.pages[{context_, bytes_}].push_back(at_);
}

}  // namespace ccl::detail
