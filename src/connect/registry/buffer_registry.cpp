#include "connect/registry/buffer_registry.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <algorithm>
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
/// Time after which freed memory is noticed. A look asks the driver about each open memory, some
/// 0.2 us for each mapping (H200).
constexpr std::chrono::milliseconds freed_after{50};
/// Time between looks while no memory is open.
constexpr std::chrono::milliseconds idle_pause{200};
/// Peers unmap memory where less than the first part of the GPU's is free, until the second is.
/// PyTorch frees cached buffers when an allocation fails, and then tries once more at once. Pages
/// that a peer has mapped would not be free yet.
constexpr std::size_t scarce_part = 20, ample_part = 16;
constexpr Word max_ids = Word{1} << (64 - RemoteBuffer::id_shift);

}  // namespace

Result<std::shared_ptr<BufferRegistry>> BufferRegistry::open(CommState& state, int composition,
                                                             std::string_view name) {
  std::shared_ptr<BufferRegistry> registry{new BufferRegistry{state}};
  registry->rank_ = state.identity.rank();
  registry->peers_ = state.identity.peers();
  for (int p = 0; p < state.identity.ranks(); ++p) {
    if (p == registry->rank_) continue;
    (registry->of_this_process(p) ? registry->readers_.here : registry->readers_.elsewhere) = true;
  }
  registry->boards_.resize(std::size_t(state.identity.ranks()));
  registry->mapped_.resize(std::size_t(state.identity.ranks()) * RemoteBuffer::slots);
  CCL_CHECK(registry->share_boards(composition, name));
  if (std::ranges::any_of(registry->peers_, [&](const PeerInfo& peer) {
        return peer.pid_hash != registry->peers_.front().pid_hash;
      })) {
    CCL_TRY(registry->sockets_, HandleSockets::open(state, composition, name));
    registry->imports_.emplace(state.device.gpu, *registry->sockets_);
  }
  const auto start = [&]() -> Result<void> {
    CCL_TRY(registry->thread_, own_thread("buffer registry", [d = registry.get()] { d->serve(); }));
    return {};
  };
  CCL_CHECK(all_agree(state, name, start()));
  return registry;
}

Result<void> BufferRegistry::share_boards(int composition, std::string_view name) {
  GpuArena arena{gpu_};
  Fd memory;
  const auto take = [this](int rank, const Fd& fd) -> Result<void> {
    CCL_TRY(boards_[std::size_t(rank)], Mapping::of(fd, sizeof(RegistryBoard)));
    return {};
  };
  const auto prepare = [&]() -> Result<void> {
    CCL_TRY(maps_buffers_, setting_flag("DIRECT_MAP"));
    CCL_TRY(table_, arena.allocate(mapped_.size() * sizeof(Word)));
    CCL_TRY(memory, shareable_memory("ccl-registry", sizeof(RegistryBoard)));
    CCL_CHECK(take(rank_, memory));
    new (boards_[std::size_t(rank_)].base()) RegistryBoard;
    return {};
  };
  const auto all = [](int) { return true; };
  return share_memory(state_,
                      {composition, name, "buffer registry", sizeof(RegistryBoard), all, take},
                      memory, prepare());
}

bool BufferRegistry::of_this_process(int peer) const {
  return peers_[std::size_t(peer)].pid_hash == peers_[std::size_t(rank_)].pid_hash;
}

BufferRegistry::~BufferRegistry() {
  if (thread_.joinable()) {
    stop_.store(true, std::memory_order_release);
    board(rank_).ring();
    thread_.join();
  }
  const Gpu::Current current{*gpu_};
  imports_.reset();
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
    exchange_handles();
    if (!stop_.load(std::memory_order_acquire)) {
      const bool any = [this] {
        const std::lock_guard lock{mutex_};
        return !open_.empty();
      }();
      mine.await_ring(notified, any ? freed_after : idle_pause);
    }
    close_freed();
    watch_free_memory();
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
  std::erase_if(opened, [this](const Open& open) { return lives(state_, open.range); });
  if (opened.empty()) return;
  const std::lock_guard lock{mutex_};
  for (const Open& freed : opened) {
    std::erase_if(open_, [&](const auto& one) {
      const bool is_freed = one.second.id == freed.id;
      if (is_freed) board(rank_).close(int(freed.id % RemoteBuffer::slots));
      return is_freed;
    });
  }
  notify_all();
}

void BufferRegistry::watch_free_memory() {
  if (!readers_.elsewhere) return;
  const Gpu::Current current{*gpu_};
  std::size_t free = 0, all = 0;
  if (gpu_->driver().mem_get_info(&free, &all) != CUDA_SUCCESS) return;
  const bool was = board(rank_).is_scarce();
  const bool is = free < all / (was ? ample_part : scarce_part);
  if (is == was) return;
  board(rank_).set_scarce(is);
  notify_all();
  log_info(LogPart::init, "{} of {} MiB are free; peers {} buffers of this rank", free >> 20,
           all >> 20, is ? "unmap" : "map");
}

bool BufferRegistry::is_withheld(int peer, const RegistryBoard::Memory& memory) const {
  return memory.kind != RegistryBoard::Kind::window && !of_this_process(peer) &&
         board(peer).is_scarce();
}

void BufferRegistry::look_at(int peer, int slot) {
  auto memory = board(peer).read(slot);
  Mapped& mapped = mapped_[std::size_t(peer * RemoteBuffer::slots + slot)];
  if (!memory) return;
  if (is_withheld(peer, *memory)) memory->id = 0;
  const bool known = memory->id == mapped.id;
  const bool dropped = mapped.window != 0 && !window_mapping(state_, mapped.window, peer).holds;
  if (known && !dropped) return;
  const Gpu::Current current{*gpu_};
  if (mapped.id != 0) {
    // Its owner has freed it or will not use it, or this rank has dropped its window: kernels no
    // longer get its address.
    enter(peer, slot, 0, 0);
    if (imports_) imports_->drop(peer, slot);
    unmap(mapped);
  }
  mapped.id = memory->id;
  if (memory->id == 0 || known) return;
  if (memory->kind == RegistryBoard::Kind::window &&
      !window_mapping(state_, memory->window, peer).holds) {
    mapped.id = 0;  // this rank has not created the window yet; the thread looks for it again
    return;
  }
  if (memory->kind == RegistryBoard::Kind::handles && !of_this_process(peer)) {
    return begin_import(peer, slot, *memory);
  }
  const Word base = map(peer, *memory, mapped);
  if (base != 0) log_info(LogPart::init, "mapped {} bytes of rank {}", memory->bytes, peer);
  enter(peer, slot, memory->id, base);
}

void BufferRegistry::enter(int peer, int slot, Word id, Word base) {
  const Word now = base == 0 ? 0 : RemoteBuffer::entry(id, base);
  if (base != 0 || id == 0) {
    const auto at = (Index{peer} * RemoteBuffer::slots + slot) * Index{sizeof(Word)};
    (void)gpu_->put(table_.at() + at, &now, sizeof now);
  }
  if (id != 0) board(peer).seen(rank_, slot, id);
}

Word BufferRegistry::map(int peer, const RegistryBoard::Memory& memory, Mapped& mapped) {
  const CudaDriver& cuda = gpu_->driver();
  const PeerInfo& self = peers_[std::size_t(rank_)];
  const PeerInfo& theirs = peers_[std::size_t(peer)];
  if (memory.kind == RegistryBoard::Kind::window) {
    WindowMapping window = window_mapping(state_, memory.window, peer);
    const Word at = reinterpret_cast<Word>(window.at);
    if (at % 256 != 0 || at >> RemoteBuffer::base_bits != 0) return 0;
    mapped.window = memory.window;
    mapped.holds = std::move(window.holds);
    return at;
  }
  if (memory.kind == RegistryBoard::Kind::handles) return can_address(memory) ? memory.base : 0;
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

bool BufferRegistry::can_address(const RegistryBoard::Memory& memory) const {
  const Word end = memory.base + memory.bytes;
  if (end >> RemoteBuffer::base_bits != 0) return false;
  // Mappings may differ in who has access.
  for (Word at = memory.base; at < end;) {
    const AddressRange mapping = mapping_around(gpu_->driver(), CUdeviceptr(at));
    if (Word(mapping.end()) <= at || !can_address(at)) return false;
    at = mapping.end();
  }
  return true;
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

const BufferRegistry::Open* BufferRegistry::find(const BufferRange& range) const {
  const auto end = open_.upper_bound(range.base);
  for (auto it = open_.begin(); it != end; ++it) {
    if (it->second.range.contains(range)) return &it->second;
  }
  return nullptr;
}

bool BufferRegistry::close_dead() {
  return std::erase_if(open_, [this](const auto& one) {
           const bool dead = !lives(state_, one.second.range);
           if (dead) board(rank_).close(int(one.second.id % RemoteBuffer::slots));
           return dead;
         }) != 0;
}

Word BufferRegistry::where(const char* data, Index bytes) {
  const Word at = reinterpret_cast<Word>(data);
  BufferRange range = range_around(state_, data, bytes, readers_, !maps_buffers_);
  if (range.bytes == 0) return 0;
  const std::lock_guard lock{mutex_};
  if (const Open* const known = find(range)) {
    return RemoteBuffer::where(known->id, at - known->range.base);
  }
  // Live buffers beyond the slots go through scratch. The driver is not asked about all of them in
  // each call.
  const auto now = std::chrono::steady_clock::now();
  const auto [first, last] = open_.equal_range(range.base);
  const bool replaces = std::any_of(
      first, last, [&](const auto& one) { return one.second.range.replaced_by(range); });
  const bool full = open_.size() >= RemoteBuffer::slots && !replaces;
  if (full && now - looked_ < freed_after) return 0;
  looked_ = now;
  const bool closed = close_dead();
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
    const Gpu::Current current{*gpu_};
    const CUresult code = gpu_->driver().ipc_get_mem_handle(&memory.ipc, range.base);
    if (code != CUDA_SUCCESS) return 0;
  }
  memory.id = fresh_id();
  if (memory.id == 0) return 0;
  board(rank_).open(memory);
  const Word base = range.base;
  open_.emplace(base, Open{memory.id, std::move(range)});
  return memory.id;
}

}  // namespace ccl::detail
