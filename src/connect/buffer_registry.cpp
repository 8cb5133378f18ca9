#include "connect/buffer_registry.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "comm/edges/memory_exchange.hpp"
#include "comm/edges/window_state.hpp"
#include "comm/rank_results.hpp"
#include "gpu/allocation.hpp"

namespace ccl::detail {
namespace {
/// Minimum size of a mapped allocation. A handle names one of the driver's own allocations, which
/// may hold several smaller ones.
constexpr Word smallest = Word{2} << 20;
/// Time after which freed memory is noticed. A look asks the driver about each open memory.
constexpr std::chrono::milliseconds freed_after{200};
constexpr Word max_ids = Word{1} << (64 - RemoteBuffer::id_shift);

}  // namespace

Result<std::shared_ptr<BufferRegistry>> BufferRegistry::open(CommState& state, int composition,
                                                             std::string_view name) {
  std::shared_ptr<BufferRegistry> registry{new BufferRegistry{state}};
  registry->rank_ = state.identity.rank();
  registry->peers_ = state.identity.peers();
  const auto of_this_process = [&](const PeerInfo& peer) {
    return peer.pid_hash == registry->peers_[std::size_t(registry->rank_)].pid_hash;
  };
  registry->shares_process_ = std::ranges::count_if(registry->peers_, of_this_process) > 1;
  registry->boards_.resize(std::size_t(state.identity.ranks()));
  registry->mapped_.resize(std::size_t(state.identity.ranks()) * RemoteBuffer::slots);
  GpuArena arena{state.device.gpu};
  Fd memory;
  const auto take = [&registry](int rank, const Fd& fd) -> Result<void> {
    CCL_TRY(registry->boards_[std::size_t(rank)], Mapping::of(fd, sizeof(RegistryBoard)));
    return {};
  };
  const auto prepare = [&]() -> Result<void> {
    CCL_TRY(registry->maps_buffers_, setting_flag("DIRECT_MAP"));
    CCL_TRY(registry->table_, arena.allocate(registry->mapped_.size() * sizeof(Word)));
    CCL_TRY(memory, shareable_memory("ccl-registry", sizeof(RegistryBoard)));
    CCL_CHECK(take(state.identity.rank(), memory));
    new (registry->boards_[std::size_t(state.identity.rank())].base()) RegistryBoard;
    return {};
  };
  const auto all = [](int) { return true; };
  CCL_CHECK(share_memory(state,
                         {composition, name, "buffer registry", sizeof(RegistryBoard), all, take},
                         memory, prepare()));
  const auto start = [&]() -> Result<void> {
    CCL_TRY(registry->thread_, own_thread("buffer registry", [d = registry.get()] { d->serve(); }));
    return {};
  };
  CCL_CHECK(all_agree(state, name, start()));
  return registry;
}

BufferRegistry::~BufferRegistry() {
  if (thread_.joinable()) {
    stop_.store(true, std::memory_order_release);
    board(rank_).ring();
    thread_.join();
  }
  const Gpu::Current current{*gpu_};
  for (Mapped& mapped : mapped_) unmap(mapped);
  for (const CUdevice device : peer_contexts_) (void)gpu_->driver().primary_ctx_release(device);
}

void BufferRegistry::serve() noexcept {
  const auto served = completion_of([this] { serve_until_stopped(); });
  if (!served) state_.status.set(served.error());  // kernels that wait end by it
}

void BufferRegistry::serve_until_stopped() {
  RegistryBoard& mine = board(rank_);
  while (!stop_.load(std::memory_order_acquire)) {
    const unsigned notified = mine.notified();
    look_at_peers();
    if (!stop_.load(std::memory_order_acquire)) {
      mine.await_ring(notified, freed_after);
    }
    close_freed();
  }
}

void BufferRegistry::look_at_peers() {
  const std::lock_guard lock{gpu_->rest().mutex};
  if (gpu_->rest().rests) return;  // the table, too: a later look finds what has changed
  for (int p = 0; p < int(peers_.size()); ++p) {
    if (p == rank_) continue;
    for (int slot = 0; slot < RemoteBuffer::slots; ++slot) look_at(p, slot);
  }
}

void BufferRegistry::close_freed() {
  std::vector<Open> opened;  // asked about without the lock, for which calls would wait
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [base, open] : open_) opened.push_back(open);
  }
  std::erase_if(opened, [this](const Open& open) { return lives(open.range); });
  if (opened.empty()) return;
  const std::lock_guard lock{mutex_};
  for (const Open& freed : opened) {
    const auto at = open_.find(freed.range.base);
    if (at == open_.end() || at->second.id != freed.id) continue;
    board(rank_).close(int(freed.id % RemoteBuffer::slots));
    open_.erase(at);
  }
  notify_all();
}

void BufferRegistry::look_at(int peer, int slot) {
  const auto memory = board(peer).read(slot);
  Mapped& mapped = mapped_[std::size_t(peer * RemoteBuffer::slots + slot)];
  if (!memory) return;
  const bool known = memory->id == mapped.id;
  const bool dropped = mapped.holds && !window_mapping(state_, mapped.window, peer).holds;
  if (known && !dropped) return;
  const Gpu::Current current{*gpu_};
  std::byte* const entry = table_.at() + (peer * RemoteBuffer::slots + slot) * Index{sizeof(Word)};
  Word now = 0;
  if (mapped.id != 0) {
    // Its owner has freed it or will not use it, or this rank has dropped its window: kernels no
    // longer get its address.
    (void)gpu_->put(entry, &now, sizeof now);
    unmap(mapped);
  }
  mapped.id = memory->id;
  if (memory->id == 0 || known) return;
  if (memory->window != 0 && !window_mapping(state_, memory->window, peer).holds) {
    mapped.id = 0;  // this rank has not created the window yet; the thread looks for it again
    return;
  }
  if (const Word base = map(peer, *memory, mapped); base != 0) {
    now = RemoteBuffer::entry(memory->id, base);
    (void)gpu_->put(entry, &now, sizeof now);
    log_info(LogPart::init, "mapped {} bytes of rank {}", memory->bytes, peer);
  }
  board(peer).seen(rank_, slot, memory->id);
}

Word BufferRegistry::map(int peer, const RegistryBoard::Memory& memory, Mapped& mapped) {
  const CudaDriver& cuda = gpu_->driver();
  const PeerInfo& self = peers_[std::size_t(rank_)];
  const PeerInfo& theirs = peers_[std::size_t(peer)];
  if (memory.window != 0) {
    WindowMapping window = window_mapping(state_, memory.window, peer);
    const Word at = reinterpret_cast<Word>(window.at);
    if (at % 256 != 0 || at >> RemoteBuffer::base_bits != 0) return 0;
    mapped.window = memory.window;
    mapped.holds = std::move(window.holds);
    return at;
  }
  if (memory.own_process != 0) {
    return self.pid_hash == theirs.pid_hash && can_address(memory.base) ? memory.base : 0;
  }
  if (self.pid_hash != theirs.pid_hash) {
    CUdeviceptr at = 0;
    const CUresult code =
        cuda.ipc_open_mem_handle(&at, memory.ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (code != CUDA_SUCCESS) {
      log_info(LogPart::init, "rank {}'s memory is not mapped ({})", peer,
               cuda_error(code, "open it").what);
      return 0;
    }
    mapped.ipc = at;
    if (at % 256 == 0 && Word(at) >> RemoteBuffer::base_bits == 0) return Word(at);
    unmap(mapped);
    return 0;
  }
  if (self.device != theirs.device) {
    CUcontext context = nullptr;
    if (cuda.primary_ctx_retain(&context, theirs.device) != CUDA_SUCCESS) return 0;
    peer_contexts_.push_back(theirs.device);
    const CUresult code = cuda.ctx_enable_peer_access(context, 0);
    if (code != CUDA_SUCCESS && code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return 0;
  }
  return memory.base >> RemoteBuffer::base_bits == 0 ? memory.base : 0;
}

bool BufferRegistry::can_address(Word base) const {
  unsigned long long access = 0;
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = gpu_->device();
  return gpu_->driver().mem_get_access(&access, &here, CUdeviceptr(base)) == CUDA_SUCCESS &&
         access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

void BufferRegistry::unmap(Mapped& mapped) {
  if (mapped.ipc != 0) (void)gpu_->driver().ipc_close_mem_handle(mapped.ipc);
  // Kernels that run may have read the address.
  if (mapped.holds) state_.device.order->retire(std::move(mapped.holds));
  mapped = {};
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

BufferRegistry::Range BufferRegistry::range_around(const char* data, Index bytes) {
  const Word at = reinterpret_cast<Word>(data);
  const Allocation whole = allocation_around(gpu_->driver(), CUdeviceptr(at));
  const bool may_open = maps_buffers_ && whole.legacy && whole.device == gpu_->device() &&
                        whole.bytes >= smallest && whole.begin % 256 == 0;
  if (may_open && at + Word(bytes) <= whole.end()) {
    return {whole.id, whole.begin, whole.bytes, false, true};
  }
  const WindowFacts window = window_around(state_, data, bytes);
  if (window.number == 0) return mapping_of_this_process(at, at + Word(bytes), whole);
  const Word base = reinterpret_cast<Word>(window.base);
  return {window.number, base, Word(window.bytes), true, base % 256 == 0};
}

BufferRegistry::Range BufferRegistry::mapping_of_this_process(Word at, Word end,
                                                              const Allocation& whole) const {
  const bool may_be = maps_buffers_ && shares_process_ && !whole.legacy && whole.id != 0 &&
                      whole.kind == CU_MEMORYTYPE_DEVICE && whole.device == gpu_->device();
  if (!may_be) return {};
  // An allocation may consist of several mappings, which differ in who has access.
  const AddressRange mapping = mapping_around(gpu_->driver(), CUdeviceptr(at));
  const bool fits = mapping.bytes >= smallest && mapping.begin % 256 == 0 && end <= mapping.end() &&
                    Word(mapping.end()) >> RemoteBuffer::base_bits == 0;
  return {whole.id, mapping.begin, mapping.bytes, false, fits, true};
}

bool BufferRegistry::lives(const Range& range) {
  if (range.is_window) return window_mapping(state_, range.buffer, rank_).holds != nullptr;
  return allocation_around(gpu_->driver(), range.base).id == range.buffer;
}

bool BufferRegistry::close_freed_and(Word base) {
  bool any = false;
  for (auto it = open_.begin(); it != open_.end();) {
    const bool stays = it->first != base && lives(it->second.range);
    if (!stays) board(rank_).close(int(it->second.id % RemoteBuffer::slots));
    any |= !stays;
    it = stays ? std::next(it) : open_.erase(it);
  }
  return any;
}

Word BufferRegistry::where(const char* data, Index bytes) {
  const Word at = reinterpret_cast<Word>(data);
  const Range range = range_around(data, bytes);
  if (!range.may_open) return 0;
  const std::lock_guard lock{mutex_};
  const auto known = open_.find(range.base);
  if (known != open_.end() && known->second.range.buffer == range.buffer &&
      known->second.range.is_window == range.is_window) {
    return RemoteBuffer::where(known->second.id, at - range.base);
  }
  // Live buffers beyond the slots go through scratch. The driver is not asked about all of them in
  // each call.
  const auto now = std::chrono::steady_clock::now();
  const bool full = open_.size() >= RemoteBuffer::slots && known == open_.end();
  if (full && now - looked_ < freed_after) return 0;
  looked_ = now;
  bool rings = close_freed_and(range.base);
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
  memory.window = range.is_window ? range.buffer : 0;
  memory.own_process = range.own_process ? 1 : 0;
  const Gpu::Current current{*gpu_};
  const bool shared = range.is_window || range.own_process ||
                      gpu_->driver().ipc_get_mem_handle(&memory.ipc, range.base) == CUDA_SUCCESS;
  memory.id = shared ? fresh_id() : 0;
  if (memory.id != 0) {
    board(rank_).open(memory);
    open_[range.base] = {memory.id, range};
    rings = true;
  }
  if (rings) notify_all();
  return memory.id == 0 ? 0 : RemoteBuffer::where(memory.id, at - range.base);
}

}  // namespace ccl::detail
