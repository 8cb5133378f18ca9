#include "nccl/device/window_table.hpp"

#include <utility>

namespace ccl::detail::nccl {

static_assert(sizeof(ncclDevCommWindowTable) <= KernelSlot::bytes);

Result<std::unique_ptr<WindowTable>> WindowTable::create(int device) {
  std::unique_ptr<WindowTable> made{new WindowTable{device}};
  CCL_CHECK(made->add_page());
  return made;
}

ncclDevCommWindowTable* WindowTable::at() const {
  return reinterpret_cast<ncclDevCommWindowTable*>(pages_.front().slot->at());
}

Result<void> WindowTable::add_page() {
  Page page;
  CCL_TRY(page.slot, KernelSlot::take(device_));
  CCL_CHECK(page.slot->write(0, &page.content, sizeof page.content));
  auto* const at = reinterpret_cast<ncclDevCommWindowTable*>(page.slot->at());
  if (!pages_.empty()) {
    Page& last = pages_.back();
    CCL_CHECK(last.slot->write(offsetof(ncclDevCommWindowTable, next), &at, sizeof(void*)));
    last.content.next = at;
  }
  pages_.push_back(std::move(page));
  return {};
}

Result<void> WindowTable::write(const Page& page, const ncclDevCommWindowTable::Entry& entry) {
  const auto at = std::size_t(&entry - page.content.entries) * sizeof entry;
  return page.slot->write(at, &entry, sizeof entry);
}

Result<void> WindowTable::add(const void* base, std::size_t bytes, ncclWindow_t window) {
  for (std::size_t p = 0;; ++p) {
    if (p == pages_.size()) CCL_CHECK(add_page());
    for (auto& entry : pages_[p].content.entries) {
      if (entry.window != nullptr) continue;
      entry = {reinterpret_cast<std::uintptr_t>(base), bytes, window};
      auto written = write(pages_[p], entry);
      if (!written) entry = {};
      return written;
    }
  }
}

Result<void> WindowTable::remove(ncclWindow_t window) {
  for (Page& page : pages_) {
    for (auto& entry : page.content.entries) {
      if (entry.window != window) continue;
      entry = {};
      return write(page, entry);
    }
  }
  return {};
}

}  // namespace ccl::detail::nccl
