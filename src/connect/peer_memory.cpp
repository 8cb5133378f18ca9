#include <ccl/comm/log.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/peer_memory.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/edges/edge_handshake.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "connect/device_state.hpp"
#include "connect/registry/buffer_registry.hpp"
#include "transport/p2p/mapping.hpp"

namespace ccl::detail {

Result<void> PeerMemory::can_address(const Edge& edge) const {
  const bool sends = edge.side == EdgeSide::sender;
  const PeerInfo& low = sends ? edge.self : edge.peer;
  const PeerInfo& high = sends ? edge.peer : edge.self;
  if (auto can = P2pTransport::can_address(low, high); !can) {
    Error error = std::move(can).error();
    error.what +=
        fmt::format("; {} addresses the memory of every peer: use Ring or Tree", owner_.name());
    return fail(std::move(error));
  }
  const EdgeTransport by = P2pTransport::edge_transport(low, high);
  if (by.line_bytes >= owner_.needs_.line_bytes) return {};
  return owner_.short_lines(low.rank, high.rank, by.transport, by.line_bytes);
}

std::size_t PeerMemory::block_bytes() const {
  return 2 * std::size_t(owner_.plan().slot_bytes) +
         std::size_t(mailboxes(owner_.comm().ranks())) * sizeof(Mailbox);
}

Result<void> PeerMemory::map(const Result<void>& so_far) {
  return map_scratch(so_far, owner_.comm().ranks() > max_unrolled_ranks);
}

Result<void> PeerMemory::map_scratch(const Result<void>& so_far, bool with_table) {
  CommState& state = *Access::state(owner_.comm());
  DeviceState* const device = owner_.device_.get();
  const Plan& plan = owner_.plan();
  const int me = state.identity.rank(), ranks = state.identity.ranks();
  const std::size_t half = std::size_t(plan.slot_bytes);
  epoch_.count = 128;  // maximum number of blocks of a launch
  const std::size_t block = block_bytes();
  const std::size_t count_bytes =
      std::size_t(epoch_.count) * std::size_t(state_words(ranks)) * sizeof(Word);
  const std::size_t table_bytes = with_table ? std::size_t(ranks) * sizeof(Packet*) : 0;
  GpuBlock scratch;
  const auto prepare = [&]() -> Result<void> {
    CCL_CHECK(so_far);
    CCL_TRY(scratch, device->arena.allocate(block));
    CCL_TRY(device->tables, device->arena.allocate(count_bytes + table_bytes + sizeof(Word)));
    epoch_.copies = reinterpret_cast<Word*>(device->tables.at());
    if (table_bytes > 0) {
      view_.set_table(reinterpret_cast<Packet**>(device->tables.at() + count_bytes));
    }
    return {};
  };
  const Result<void> prepared = prepare();

  const auto lock = state.rendezvous.lock();
  const TransportContext context =
      transport_context(state, device != nullptr ? &device->arena : nullptr);
  std::vector<P2pMapping> mappings(ranks);
  std::vector<Packet*> scratch_of(std::size_t(ranks), nullptr);
  std::vector<EdgeHandshake> rendezvous_points;
  for (int p = 0; p < ranks; ++p) {
    if (p == me) continue;
    const int low = std::min(p, me), high = std::max(p, me);
    Edge edge;
    edge.self = state.identity.peers()[me];
    edge.peer = state.identity.peers()[p];
    edge.side = me < p ? EdgeSide::sender : EdgeSide::receiver;
    edge.shape = {1, plan.slot_count, plan.slot_bytes};
    edge.id = edge_id(owner_.number(), low, high);
    P2pMapping& mapping = mappings[p];
    const auto offer = [&, edge]() -> Result<Handshake> {
      CCL_CHECK(can_address(edge));
      CCL_TRY(mapping, P2pMapping::make(context, edge, scratch, block, std::size_t(ranks)));
      return mapping.handshake();
    };
    const auto connect = [&, p](const Handshake& theirs) -> Result<void> {
      CCL_CHECK(mapping.connect(theirs));
      scratch_of[std::size_t(p)] = reinterpret_cast<Packet*>(mapping.theirs().at());
      using Blocks = std::pair<GpuBlock, GpuBlock>;
      Connection connection;
      connection.owner = std::make_shared<Blocks>(mapping.mine(), mapping.theirs());
      connection.transport = P2pTransport::name;
      owner_.owners_.push_back(std::move(connection));
      return {};
    };
    rendezvous_points.push_back({p, edge.id, offer, connect});
  }
  CCL_CHECK(swap_handshakes(state, owner_.name(), P2pTransport::name, prepared, rendezvous_points));
  scratch_of[std::size_t(me)] = reinterpret_cast<Packet*>(scratch.at());
  if (kind_ != MulticastKind::none) {
    taken_ = reinterpret_cast<Word*>(device->tables.at() + count_bytes + table_bytes);
  }
  if (table_bytes > 0) {
    CCL_CHECK(all_agree(state, owner_.name(),
                        device->arena.gpu()->put(device->tables.at() + count_bytes,
                                                 scratch_of.data(), table_bytes)));
  } else {
    std::copy(scratch_of.begin(), scratch_of.end(), view_.scratch);
  }
  by_cumem_ = scratch.memory->name().handles != 0;
  view_.half_packets = Index(half / sizeof(Packet));
  view_.rank = me;
  view_.ranks = ranks;
  owner_.charge(Index(block));
  log_info(LogPart::init, "{}: scratch of {} bytes at every rank, by p2p", owner_.name(), 2 * half);
  return {};
}

Result<void> PeerMemory::open_registry() {
  CommState& state = *Access::state(owner_.comm());
  const auto lock = state.rendezvous.lock();
  if (state.device.registry) return {};
  if (state.identity.hosts() > 1) {
    // The board lies in memory of one host.
    log_info(LogPart::init, "{}: ranks of {} hosts pass through scratch, not into mapped buffers",
             owner_.name(), state.identity.hosts());
    return {};
  }
  auto made = BufferRegistry::open(state, owner_.number(), owner_.name());
  if (!made) return fail(state.annotate(std::move(made).error()));
  state.device.registry = *std::move(made);
  return {};
}

Word PeerMemory::remote_buffer(const char* data, Index bytes) const {
  BufferRegistry* const registry =
      static_cast<BufferRegistry*>(Access::state(owner_.comm())->device.registry.get());
  return registry == nullptr || bytes == 0 ? 0 : registry->where(data, bytes);
}

const Word* PeerMemory::registry_table() const {
  const BufferRegistry* const registry =
      static_cast<BufferRegistry*>(Access::state(owner_.comm())->device.registry.get());
  return registry == nullptr ? nullptr : registry->table();
}

}  // namespace ccl::detail
