#include <ccl/comm/log.hpp>
#include <ccl/detail/exchange/mailbox.hpp>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "connect/registry/buffer_registry.hpp"

// The owner of buffers: it posts and closes them, and watches its GPU's memory.
namespace ccl::detail {
namespace {
/// Peers unmap memory where less than the first part of the GPU's is free, until the second has
/// been for a while. PyTorch frees cached buffers when an allocation fails, and then tries once
/// more at once. Pages that a peer has mapped would not be free yet.
constexpr std::size_t scarce_part = 32, ample_part = 24;
constexpr std::chrono::seconds scarce_for{2};
/// Time after which a buffer that no call uses leaves its slot to another one.
constexpr std::chrono::seconds unused_after{2};
constexpr Word max_ids = Word{1} << (64 - RemoteBuffer::id_shift);
}  // namespace

void BufferRegistry::close_freed() {
  std::vector<Open> opened;  // asked about without the lock, for which calls would wait
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [base, open] : open_) opened.push_back(open);
  }
  const Gpu::Current current{*gpu_};
  std::erase_if(opened, [this](const Open& open) { return lives(state_, open.range); });
  if (opened.empty()) return;
  const std::lock_guard lock{mutex_};
  (void)close_if([&](const Open& open) {
    return std::ranges::any_of(opened, [&](const Open& freed) { return freed.id == open.id; });
  });
  notify_all();
}

template <class Ends>
bool BufferRegistry::close_if(Ends ends) {
  return std::erase_if(open_, [&](const auto& one) {
           const bool closes = ends(one.second);
           if (closes) board(rank_).close(int(one.second.id % RemoteBuffer::slots));
           return closes;
         }) != 0;
}

void BufferRegistry::close_all() {
  if (close_if([](const Open&) { return true; })) notify_all();
}

void BufferRegistry::watch_free_memory() {
  if (!readers_.elsewhere) return;
  const Gpu::Current current{*gpu_};
  std::size_t free = 0, all = 0;
  if (gpu_->driver().mem_get_info(&free, &all) != CUDA_SUCCESS) return;
  const bool was = board(rank_).is_scarce();
  if (free < all / (was ? ample_part : scarce_part)) scarce_since_ = watched_;
  const bool is = scarce_since_ == watched_ || (was && watched_ - scarce_since_ < scarce_for);
  if (is == was) return;
  board(rank_).set_scarce(is);
  notify_all();
  log_info(LogPart::init, "{} of {} MiB are free; peers {} buffers of this rank", free >> 20,
           all >> 20, is ? "unmap" : "map");
}

void BufferRegistry::notify_all() {
  for (int p = 0; p < int(peers_.size()); ++p) {
    if (p != rank_) board(p).ring();
  }
}

Word BufferRegistry::fresh_id() {
  std::array<bool, RemoteBuffer::slots> open{};
  for (const auto& [base, known] : open_) open[known.id % RemoteBuffer::slots] = true;
  int best = -1;
  for (int slot = 0; slot < RemoteBuffer::slots; ++slot) {
    const auto s = std::size_t(slot);
    if (!open[s] && (best < 0 || taken_[s] < taken_[std::size_t(best)])) best = slot;
  }
  if (best < 0) return 0;
  Word& taken = taken_[std::size_t(best)];
  if (best == 0 && taken == 0) taken = 1;  // 0 is no id
  const Word id = taken * RemoteBuffer::slots + Word(best);
  if (id >= max_ids) return 0;
  ++taken;
  return id;
}

BufferRegistry::Open* BufferRegistry::find(const BufferRange& range) {
  const auto end = open_.upper_bound(range.base);
  for (auto it = open_.begin(); it != end; ++it) {
    if (it->second.range.contains(range)) return &it->second;
  }
  return nullptr;
}

bool BufferRegistry::make_room(const BufferRange& range, Clock::time_point now) {
  const bool full = open_.size() >= RemoteBuffer::slots;
  bool closed = close_if([&](const Open& open) {
    const bool apart = open.range.end() <= range.base || range.end() <= open.range.base;
    return (full || !apart) && !lives(state_, open.range);
  });
  if (open_.size() >= RemoteBuffer::slots) {
    const auto oldest =
        std::ranges::min_element(open_, {}, [](const auto& one) { return one.second.used; });
    const Word id = oldest->second.id;
    const bool unused = now - oldest->second.used > unused_after;
    closed |= unused && close_if([id](const Open& open) { return open.id == id; });
  }
  return closed;
}

Word BufferRegistry::where(const char* data, Index bytes) {
  const Gpu::Current current{*gpu_};
  const Word at = reinterpret_cast<Word>(data);
  BufferRange range = range_around(state_, data, bytes, readers_, !maps_buffers_);
  if (range.bytes == 0) return 0;
  const auto now = Clock::now();
  const std::lock_guard lock{mutex_};
  if (Open* const known = find(range)) {
    known->used = now;
    return RemoteBuffer::where(known->id, at - known->range.base);
  }
  // Live buffers beyond the slots go through scratch. The driver is not asked about all of them in
  // each call.
  const auto [first, last] = open_.equal_range(range.base);
  const bool replaces = std::any_of(
      first, last, [&](const auto& one) { return one.second.range.replaced_by(range); });
  const bool full = open_.size() >= RemoteBuffer::slots && !replaces;
  if (full && now - looked_ < freed_after) return 0;
  looked_ = now;
  const bool closed = make_room(range, now);
  const Word base = range.base, id = post(std::move(range));
  if (closed || id != 0) notify_all();
  return id == 0 ? 0 : RemoteBuffer::where(id, at - base);
}

Word BufferRegistry::post(BufferRange range) {
  if (open_.size() >= RemoteBuffer::slots) {
    if (!std::exchange(said_full_, true)) {
      log_info(LogPart::init,
               "peers map no more than {} buffers of this rank at once; others go "
               "through scratch",
               RemoteBuffer::slots);
    }
    return 0;
  }
  RegistryBoard::Memory memory;
  memory.base = range.base;
  memory.bytes = range.bytes;
  memory.kind = range.kind;
  memory.window = range.window;
  if (range.kind == BufferRange::Kind::handles && range.can_export()) {
    memory.handles = range.mappings.size();
  }
  if (range.kind == BufferRange::Kind::legacy) {
    const CUresult code = gpu_->driver().ipc_get_mem_handle(&memory.ipc, range.base);
    if (code != CUDA_SUCCESS) return 0;
  }
  memory.id = fresh_id();
  if (memory.id == 0) return 0;
  board(rank_).open(memory);
  const Word base = range.base;
  open_.emplace(base, Open{memory.id, std::move(range), Clock::now()});
  return memory.id;
}

}  // namespace ccl::detail
