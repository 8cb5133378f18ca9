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
/// Time between looks while no memory is open.
constexpr std::chrono::milliseconds idle_pause{200};

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
  if (registry->readers_.elsewhere) {  // equal on all ranks
    CCL_TRY(registry->sockets_, HandleSockets::open(state, composition, name));
    registry->imports_.emplace(state.device.gpu, *registry->sockets_);
  }
  const auto start = [&]() -> Result<void> {
    CCL_TRY(registry->thread_, own_thread("buffer registry", [d = registry.get()] { d->serve(); }));
    return {};
  };
  CCL_CHECK(all_agree(state, name, start()));
  const std::lock_guard lock{state.device.gpu->rest().mutex};
  state.device.gpu->rest().before = [d = registry.get()] { d->leave_peers(); };
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
  {
    const std::lock_guard lock{gpu_->rest().mutex};
    gpu_->rest().before = nullptr;
  }
  if (thread_.joinable()) {
    stop_.store(true, std::memory_order_release);
    board(rank_).ring();
    thread_.join();
    // The program may free its memory, and peers would not learn of it.
    close_all();
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
    const bool unmaps = state_.device.order->release_retired();
    if (!stop_.load(std::memory_order_acquire)) {
      const bool opens = [this] {
        const std::lock_guard lock{mutex_};
        return !open_.empty();
      }();
      mine.await_ring(notified, opens || unmaps ? freed_after : idle_pause);
    }
    // Peers may ring more often.
    if (const auto now = Clock::now(); now - watched_ >= freed_after) {
      watched_ = now;
      close_freed();
      watch_free_memory();
    }
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

void BufferRegistry::leave_peers() {
  const Gpu::Current current{*gpu_};
  for (int p = 0; p < int(peers_.size()); ++p) {
    for (int slot = 0; slot < RemoteBuffer::slots; ++slot) {
      Mapped& mapped = mapped_of(p, slot);
      if (mapped.id == 0 || mapped.window != 0 || !put_entry(p, slot, 0)) continue;
      if (imports_) imports_->drop(p, slot);
      unmap(mapped);
    }
  }
}

bool BufferRegistry::is_withheld(int peer, const RegistryBoard::Memory& memory,
                                 const Mapped& mapped) const {
  if (memory.kind == RegistryBoard::Kind::window || of_this_process(peer) ||
      !board(peer).is_scarce()) {
    return false;
  }
  // A replay, of which the host does not know, may be using the mapping.
  return mapped.id != memory.id || !state_.device.order->may_replay();
}

void BufferRegistry::look_at(int peer, int slot) {
  auto memory = board(peer).read(slot);
  Mapped& mapped = mapped_of(peer, slot);
  if (!memory) return;
  if (is_withheld(peer, *memory, mapped)) memory->id = 0;
  const bool known = memory->id == mapped.id;
  const bool dropped = mapped.window != 0 && !window_mapping(state_, mapped.window, peer).holds;
  if (known && !dropped) return;
  const Gpu::Current current{*gpu_};
  if (mapped.id != 0) {
    // Its owner has freed it or will not use it, or this rank has dropped its window: kernels no
    // longer get its address.
    if (!put_entry(peer, slot, 0)) return;  // the next look tries again
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

Result<void> BufferRegistry::put_entry(int peer, int slot, Word entry) {
  const auto at = (Index{peer} * RemoteBuffer::slots + slot) * Index{sizeof(Word)};
  return gpu_->put(table_.at() + at, &entry, sizeof entry);
}

void BufferRegistry::enter(int peer, int slot, Word id, Word base) {
  if (base != 0) (void)put_entry(peer, slot, RemoteBuffer::entry(id, base));
  board(peer).seen(rank_, slot, id);
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
    mapped.holds = std::shared_ptr<void>{
        reinterpret_cast<void*>(at), [gpu = gpu_](void* there) {
          const Gpu::Current in_context{*gpu};
          (void)gpu->driver().ipc_close_mem_handle(reinterpret_cast<CUdeviceptr>(there));
        }};
    return at % 256 == 0 && Word(at) >> RemoteBuffer::base_bits == 0 ? Word(at) : 0;
  }
  if (self.device != theirs.device) {
    CUcontext context = nullptr;
    if (cuda.primary_ctx_retain(&context, theirs.device) != CUDA_SUCCESS) return 0;
    if (std::ranges::find(peer_contexts_, theirs.device) == peer_contexts_.end()) {
      peer_contexts_.push_back(theirs.device);
    } else {
      (void)cuda.primary_ctx_release(theirs.device);
    }
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
  // Kernels that run may have read the address.
  if (mapped.holds) state_.device.order->retire(std::move(mapped.holds));
  mapped = {};
}

}  // namespace ccl::detail
