#include <ccl/comm/log.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/multicast/launch.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/peer_memory.hpp>
#include <ccl/transport/nvls.hpp>

#include <fmt/format.h>

#include <string>
#include <utility>

#include "comm/edges/window_state.hpp"
#include "comm/rank/machine_facts.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "connect/device_state.hpp"
#include "connect/host_scratch.hpp"
#include "connect/multicast/bound_windows.hpp"
#include "connect/multicast/switch_block.hpp"

namespace ccl::detail {

namespace {
/// Returns the channels that keep NVSwitches busy: NCCL's numbers, as ccl has not measured any.
int switch_channels(const Identity& identity) {
  return host_facts(identity).compute_capability >= 100 ? 24 : 16;
}
}  // namespace

Result<void> PeerMemory::can_multicast(MulticastKind kind) const {
  const CommState& state = *Access::state(owner_.comm());
  const auto& peers = state.identity.peers();
  const PeerInfo& me = peers[std::size_t(state.identity.rank())];
  for (const PeerInfo& peer : peers) {
    if (peer.rank == me.rank) continue;
    if (auto can = detail::can_multicast(kind, me, peer); !can) {
      Error error = std::move(can).error();
      if (error.peer < 0) error.peer = peer.rank;
      return fail(state.annotate(std::move(error)));
    }
  }
  return {};
}

Result<void> PeerMemory::map_multicast(MulticastKind kind, const Result<void>& so_far) {
  const Identity& identity = Access::state(owner_.comm())->identity;
  heads_ = identity.heads();
  // CPU ranks have one kind.
  kind_ = owner_.on_device() ? kind : MulticastKind::emulated;
  max_channels_ = kind == MulticastKind::switches ? switch_channels(identity) : Mailbox::max_rings;
  const auto checked = [&]() -> Result<void> {
    CCL_CHECK(so_far);
    return can_multicast(kind);
  };
  if (!owner_.on_device()) return map_on_host(checked());
  return kind == MulticastKind::switches ? map_by_switches(checked())
                                         : map_scratch(checked(), true);
}

Result<void> PeerMemory::map_on_host(const Result<void>& so_far) {
  CommState& state = *Access::state(owner_.comm());
  const int ranks = owner_.comm().ranks();
  const auto lock = state.rendezvous.lock();
  CCL_TRY(const HostScratch scratch,
          HostScratch::map(state, owner_.number(), owner_.name(), block_bytes(), so_far));
  Connection connection;
  connection.owner = scratch.owner();
  connection.transport = NvlsTransport::name;
  owner_.owners_.push_back(std::move(connection));
  for (int r = 0; r < ranks; ++r) table_.push_back(reinterpret_cast<Packet*>(scratch.at(r)));
  host_counts_.resize(std::size_t(Mailbox::max_rings));
  epoch_ = {host_counts_.data(), Mailbox::max_rings};
  taken_ = &host_taken_;
  view_.set_table(table_.data());
  view_.half_packets = owner_.plan().slot_bytes / Index{sizeof(Packet)};
  view_.rank = owner_.comm().rank();
  view_.ranks = ranks;
  owner_.charge(Index(block_bytes()));
  log_info(LogPart::init, "{}: scratch of {} bytes at every rank, in shared memory", owner_.name(),
           2 * owner_.plan().slot_bytes);
  return {};
}

Result<void> PeerMemory::map_by_switches(const Result<void>& so_far) {
  CommState& state = *Access::state(owner_.comm());
  DeviceState& device = *owner_.device_;
  const int me = state.identity.rank(), ranks = state.identity.ranks();
  epoch_.count = Mailbox::max_rings;
  const std::size_t count_bytes = std::size_t(epoch_.count) * sizeof(Word);
  const std::size_t table_bytes = std::size_t(ranks) * sizeof(Packet*);
  const auto prepare = [&]() -> Result<void> {
    CCL_CHECK(so_far);
    CCL_TRY(device.tables, device.arena.allocate(count_bytes + table_bytes + sizeof(Word)));
    return {};
  };
  const Result<void> prepared = prepare();
  const auto lock = state.rendezvous.lock();
  CCL_TRY(const std::shared_ptr<MulticastBlock> block,
          make_switch_block(state, owner_.number(), owner_.name(), block_bytes(), prepared));
  Connection connection;
  connection.owner = block;
  connection.transport = NvlsTransport::name;
  owner_.owners_.push_back(std::move(connection));
  {
    // A peer that this rank does not wait for may still store to all ranks.
    const auto windows = state.observers.lock_windows();
    state.kept_for_peers.push_back(block);
  }
  // Lanes load and store their own copy by its address, and others' by the multicast address alone.
  table_.assign(std::size_t(ranks), nullptr);
  table_[std::size_t(me)] = reinterpret_cast<Packet*>(block->own());
  epoch_.copies = reinterpret_cast<Word*>(device.tables.at());
  std::byte* const table = device.tables.at() + count_bytes;
  taken_ = reinterpret_cast<Word*>(table + table_bytes);
  CCL_CHECK(
      all_agree(state, owner_.name(), device.arena.gpu()->put(table, table_.data(), table_bytes)));
  view_.set_table(reinterpret_cast<Packet**>(table));
  view_.half_packets = owner_.plan().slot_bytes / Index{sizeof(Packet)};
  view_.rank = me;
  view_.ranks = ranks;
  all_ = block->all();
  owner_.charge(Index(block->bytes()));
  log_info(LogPart::init, "{}: scratch of {} bytes at every rank, by NVLink multicast",
           owner_.name(), 2 * owner_.plan().slot_bytes);
  return {};
}

Result<void> PeerMemory::bind_windows() {
  CommState& state = *Access::state(owner_.comm());
  if (!state.window_binder) state.window_binder = std::make_shared<BoundWindows>(state);
  return static_cast<BoundWindows&>(*state.window_binder).add(kind_);
}

bool PeerMemory::binds_windows() const {
  const auto* const binder =
      static_cast<const BoundWindows*>(Access::state(owner_.comm())->window_binder.get());
  return binder != nullptr && binder->count(kind_) > 0;
}

BoundPlace PeerMemory::bound(const void* data, Index bytes) const {
  BoundWindow found = bound_window(*Access::state(owner_.comm()), kind_, data, bytes);
  if (!found.holds || found.offset % Index{sizeof(Packet)} != 0) return {};
  return {WindowPlaceWord::of(found.number, found.offset), found.part.each, found.part.all,
          found.offset, std::move(found.holds)};
}

std::string PeerMemory::where(const void* data, Index bytes) const {
  CommState& state = *Access::state(owner_.comm());
  const BoundWindow found = bound_window(state, kind_, data, bytes);
  if (found.number == 0) return "in no window";
  std::string text = fmt::format("at offset {} of window {}", found.offset, found.number);
  if (!found.holds) {
    return text + ", which multicast does not reach: " +
           static_cast<const BoundWindows&>(*state.window_binder).refusal(kind_, found.number);
  }
  if (found.offset % Index{sizeof(Packet)} != 0) text += ", no multiple of 16";
  return text;
}

Result<Word> PeerMemory::latest_way() const {
  if (taken_ == nullptr) return Word{0};
  if (!owner_.on_device()) return HostMemory::load_relaxed(taken_);
  Word word = 0;
  CCL_CHECK(Access::state(owner_.comm())->device.gpu->get(&word, taken_, sizeof word));
  return word;
}

Result<std::string> taken_way(const Connections& connections) {
  CCL_TRY(const Word taken, connections.peer_memory().latest_way());
  if (taken == 0) return "copied";
  const bool loaded = (taken & TakenWay::loaded_windows) != 0;
  const bool stored = (taken & TakenWay::stored_windows) != 0;
  if (!loaded && !stored) return "copied";
  return loaded && stored ? "loaded from windows, stored to windows"
         : loaded         ? "loaded from windows"
                          : "stored to windows";
}

}  // namespace ccl::detail
