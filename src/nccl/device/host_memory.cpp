#include "nccl/device/host_memory.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/io/mapping.hpp"
#include "base/made_once.hpp"
#include <sys/sysinfo.h>

namespace ccl::detail::nccl {
namespace {

constexpr std::size_t page = 4096;

/// Memory that the program has, by address. Null: of this process alone.
struct HostAllocations {
  std::map<const void*, std::shared_ptr<SharedBlock>, std::less<>> all;
  std::size_t shareable = 0;
  ForkMutex mutex{[this] {
    renew(all);
    shareable = 0;
  }};
};
HostAllocations& host_allocations() {
  static constinit MadeOnce<HostAllocations> one;
  return one.get();
}

Result<std::shared_ptr<SharedBlock>> shareable_block(std::size_t bytes) {
  auto block = std::make_shared<SharedBlock>();
  struct sysinfo system {};  // a file of memory may be of any size, and its pages are taken later
  if (::sysinfo(&system) == 0 && bytes / system.mem_unit > system.totalram + system.totalswap) {
    return fail(Errc::out_of_memory,
                fmt::format("{} bytes are more than the memory of this host", bytes));
  }
  block->bytes = Index(bytes);
  CCL_TRY(block->file, shareable_memory("ccl-nccl", bytes));
  CCL_TRY(block->host, Mapping::of(block->file, bytes));
  return block;
}

bool may_be_shareable() {
  HostAllocations& known = host_allocations();
  const std::lock_guard lock{known.mutex};
  return known.shareable < max_shareable;
}

}  // namespace

Result<void*> allocate_on_host(std::size_t bytes) {
  const std::size_t rounded = (bytes + page - 1) / page * page;
  HostAllocations& known = host_allocations();
  if (may_be_shareable()) {
    auto block = shareable_block(rounded);
    if (block) {
      void* const at = (*block)->data();
      const std::lock_guard lock{known.mutex};
      known.all[at] = *std::move(block);
      ++known.shareable;
      return at;
    }
    log_info(LogPart::alloc, "ncclMemAlloc gives {} bytes that other processes cannot map: {}",
             rounded, block.error().message());
  }
  void* const own = std::aligned_alloc(page, rounded);
  if (own == nullptr) {
    return fail(Errc::out_of_memory, fmt::format("no memory for {} bytes", bytes));
  }
  std::memset(own, 0, rounded);
  const std::lock_guard lock{known.mutex};
  known.all[own] = nullptr;
  return own;
}

Result<void> release_on_host(void* memory) {
  if (memory == nullptr) return {};
  HostAllocations& known = host_allocations();
  std::shared_ptr<SharedBlock> ended;  // outside of the lock
  {
    const std::lock_guard lock{known.mutex};
    const auto found = known.all.find(memory);
    if (found == known.all.end()) {
      return fail(Errc::invalid_argument,
                  fmt::format("{} is no memory of ncclMemAlloc, or was freed already; free each "
                              "allocation once",
                              memory));
    }
    ended = std::move(found->second);
    known.all.erase(found);
    if (ended) --known.shareable;
  }
  if (!ended) std::free(memory);
  return {};
}

bool host_block_begins(const void* memory) {
  HostAllocations& known = host_allocations();
  const std::lock_guard lock{known.mutex};
  return known.all.find(memory) != known.all.end();
}

std::shared_ptr<SharedBlock> host_block_of(const void* data, std::size_t bytes) {
  HostAllocations& known = host_allocations();
  const std::lock_guard lock{known.mutex};
  auto above = known.all.upper_bound(data);
  if (above == known.all.begin()) return nullptr;
  const auto& [at, block] = *--above;
  if (!block) return nullptr;
  const auto offset =
      std::size_t(static_cast<const std::byte*>(data) - static_cast<const std::byte*>(at));
  const bool inside =
      offset <= std::size_t(block->bytes) && bytes <= std::size_t(block->bytes) - offset;
  return inside ? block : nullptr;
}

}  // namespace ccl::detail::nccl
