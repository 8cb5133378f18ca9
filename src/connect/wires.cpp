#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/log_style.hpp"
#include "base/numa.hpp"
#include "comm/edges/edge_handshake.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "connect/agreement.hpp"
#include "connect/channel_uses.hpp"
#include "connect/device_state.hpp"
#include "connect/idle_pairs.hpp"
#include "gpu/devices.hpp"
#include "transport/edge_error.hpp"
#include "transport/ib/verbs/presence.hpp"
#include "transport/plug_in/presence.hpp"
#include "transport/wire_layout.hpp"

namespace ccl::detail {

namespace {
/// Line of NCCL's log that names a channel and what carries it. Numbers in brackets are devices.
/// `port`: the RDMA port in the process's list; -1: unknown.
std::string channel_line(const Communicator& comm, int channel, int sender, int receiver,
                         std::string_view transport, int port) {
  std::string line = fmt::format("Channel {:02}/0 : {}[{}] -> {}[{}] ", channel, sender,
                                 comm.peer(sender).device, receiver, comm.peer(receiver).device);
  const char* const end = comm.rank() == sender ? "[send]" : "[receive]";
  if (transport == "p2p") return line + "via P2P/direct";
  if (transport == "shm") return line + "via SHM/direct";
  if (transport == "ib") {
    return line + fmt::format("{} via NET/IB{}", end, port < 0 ? "" : fmt::format("/{}", port));
  }
  if (transport == "socket") return line + fmt::format("{} via NET/Socket", end);
  if (transport == "plugin") return line + fmt::format("{} via NET/{}", end, net_plug_in_name());
  return line + fmt::format("via {}", transport);
}

/// Returns the index of the first port that a NIC of `EdgeNics` has, such as "mlx5_0:1" or
/// "mlx5_0+mlx5_1"; -1: none. The topology numbers the ports of a card, whose functions may each
/// number their own from 1: a port that the device does not have is its first.
int port_of(std::string_view nic, const std::vector<IbPortName>& ports) {
  const std::string_view device = nic.substr(0, nic.find_first_of(":+"));
  int first = -1;
  for (std::size_t n = 0; n < ports.size(); ++n) {
    if (ports[n].device != device) continue;
    if (nic == fmt::format("{}:{}", device, ports[n].number)) return int(n);
    if (first < 0) first = int(n);
  }
  return first;
}

/// Checks that the connection has the wires of the edge. The transport may be a program's own.
Result<void> check_wires(const std::string& name, const Connection& made, const Edge& edge) {
  const auto wrong = [&](std::string what) {
    return fail(edge_error(
        edge, made.transport, Errc::invalid_argument,
        fmt::format("{} cannot use what the transport's `connect` gave for the edge between ranks "
                    "{} and {} ({}); see docs/guide/own_transport.md",
                    name, edge.self.rank, edge.peer.rank, what)));
  };
  if (made.wires.size() != std::size_t(edge.shape.channels)) {
    return wrong(fmt::format("{} wires for {} channels", made.wires.size(), edge.shape.channels));
  }
  for (const Wire& wire : made.wires) {
    const Index bytes = Index{wire.slot_packets} * Index(sizeof(Packet));
    if (wire.slot_count != edge.shape.slot_count || bytes != edge.shape.slot_bytes) {
      return wrong(fmt::format("a wire of {} slots of {} bytes where {} of {} were asked for",
                               wire.slot_count, bytes, edge.shape.slot_count,
                               edge.shape.slot_bytes));
    }
    const Word* const own = edge.side == EdgeSide::sender ? wire.sent : wire.received;
    if (wire.slots == nullptr || wire.posted == nullptr || wire.drained == nullptr ||
        own == nullptr || (wire.proxied && wire.sizes == nullptr)) {
      return wrong(fmt::format("a wire without {}", wire.slots == nullptr     ? "slots"
                                                    : wire.posted == nullptr  ? "`posted`"
                                                    : wire.drained == nullptr ? "`drained`"
                                                    : own != nullptr          ? "`sizes`"
                                                    : edge.side == EdgeSide::sender
                                                        ? "`sent`, as a sender has"
                                                        : "`received`, as a receiver has"));
    }
    if (reinterpret_cast<std::uintptr_t>(wire.slots) % 128 != 0) {
      return wrong("slots that do not begin on a line of 128 bytes");
    }
  }
  return {};
}

/// Sets the GPU over which a rank sends by the NICs of its wires. All slots of an edge lie in one
/// piece of memory, so there is one GPU or none. Without one, the slots lie on the rank's own GPU
/// if all NICs may access it.
void choose_relay(const CommState& state, const std::vector<std::int64_t>& relays, EdgeNics& nics) {
  const auto relayed = [](std::int64_t relay) { return relay >= 0; };
  const auto none = [&](std::string why) {
    if (!nics.no_gpu_access.empty()) nics.no_gpu_access = std::move(why);
  };
  if (std::none_of(relays.begin(), relays.end(), relayed)) return;
  const std::int64_t relay = relays.front();
  if (std::count(relays.begin(), relays.end(), relay) != std::ptrdiff_t(relays.size())) {
    return none("the NICs of its channels are next to different GPUs");
  }
  const auto& peers = state.identity.peers();
  const PeerInfo& me = peers[std::size_t(state.identity.rank())];
  const auto through = std::find_if(peers.begin(), peers.end(), [&](const PeerInfo& peer) {
    return peer.host_hash == me.host_hash && peer.bus_id == relay;
  });
  if (through == peers.end() || through->way.fault != 0) {
    return none(fmt::format("GPU {} next to the NIC is not reached by P2P", bus_id_text(relay)));
  }
  nics.relay = relay;
  nics.no_gpu_access.clear();
}
}  // namespace

Result<void> Connections::upload() {
  CommState& state = *Access::state(comm_);
  const PositionTable& at = positions_;
  const auto part = [](const auto& v) { return v.size() * sizeof v[0]; };
  // The tables lie in the order of their alignment.
  const std::size_t out = part(rows_.in()), rings = out + part(rows_.out()),
                    trees = rings + part(at.rings), hosts = trees + part(at.trees),
                    cursors = hosts + part(at.hosts),
                    order = (cursors + part(cursors_) + 7) / 8 * 8,
                    host_order = order + part(at.order),
                    all_heads = host_order + part(at.host_order),
                    columns = all_heads + part(at.all_heads),
                    bytes = columns + part(rows_.column_of());
  static_assert(alignof(TreePosition) <= 8 && sizeof(TreePosition) % 8 == 0 &&
                sizeof(RingPosition) % 8 == 0 && sizeof(HostPosition) % 8 == 0);
  if (bytes > device_->table_bytes) {
    // Launches that are under way read the tables until the composition ends.
    if (device_->tables.memory) device_->former_tables.push_back(device_->tables);
    CCL_TRY(device_->tables, device_->arena.allocate(bytes));
    device_->table_bytes = bytes;
  }
  std::byte* const base = device_->tables.at();
  std::vector<std::byte> image(bytes);
  const auto put = [&](std::size_t offset, const auto& v) {
    if (part(v) > 0) std::memcpy(image.data() + offset, v.data(), part(v));
  };
  auto device_rings = at.rings;
  for (RingPosition& ring : device_rings) {
    ring.order = reinterpret_cast<const int*>(base + order) + (ring.order - at.order.data());
  }
  auto device_hosts = at.hosts;
  for (HostPosition& host : device_hosts) {
    host.order =
        reinterpret_cast<const int*>(base + host_order) + (host.order - at.host_order.data());
    if (host.all_heads != nullptr) host.all_heads = reinterpret_cast<const int*>(base + all_heads);
  }
  put(0, rows_.in());
  put(out, rows_.out());
  put(rings, device_rings);
  put(trees, at.trees);
  put(hosts, device_hosts);
  put(order, at.order);
  put(host_order, at.host_order);
  put(all_heads, at.all_heads);
  put(columns, rows_.column_of());
  tables_.in = reinterpret_cast<const Wire*>(base);
  tables_.out = reinterpret_cast<const Wire*>(base + out);
  tables_.rings = reinterpret_cast<const RingPosition*>(base + rings);
  tables_.trees = reinterpret_cast<const TreePosition*>(base + trees);
  if (!at.hosts.empty()) tables_.hosts = reinterpret_cast<const HostPosition*>(base + hosts);
  tables_.cursors = cursors_.empty() ? nullptr : reinterpret_cast<Cursor*>(base + cursors);
  tables_.columns = rows_.columns();
  if (!rows_.column_of().empty()) tables_.column_of = reinterpret_cast<const int*>(base + columns);
  return state.device.gpu->put(base, image.data(), bytes);
}

EdgeNics Connections::nics_of(const Edge& edge, const ChannelUses& channels) const {
  const CommState& state = *Access::state(comm_);
  EdgeNics nics;
  for (const topo::HostNic& nic : state.identity.nics()) nics.names.push_back(nic.name);
  if (nics.names.empty()) return nics;
  const bool sends = edge.side == EdgeSide::sender;
  std::vector<std::int64_t> relays;  // by wire
  const std::vector<int>* relay_distances = nullptr;
  for (const auto& [channel, use] : channels) {
    const int device =
        state.identity.arrangement().net({use, edge.self.rank, edge.peer.rank, channel, sends});
    int index = -1;
    for (std::size_t n = 0; n < nics.names.size(); ++n) {
      if (state.identity.nics()[n].device == device) index = int(n);
    }
    nics.of_wire.push_back(index);
    const bool relayed =
        sends && index >= 0 &&
        (use != topo::EdgeUse::pair || state.identity.nics()[std::size_t(index)].relays_messages);
    relays.push_back(relayed ? state.identity.nics()[std::size_t(index)].relay : -1);
    if (!nics.no_gpu_access.empty()) continue;
    if (index < 0) {
      nics.no_gpu_access = "the topology knows no NIC for it";
    } else {
      const topo::HostNic& nic = state.identity.nics()[std::size_t(index)];
      nics.no_gpu_access = sends ? nic.no_read : nic.no_write;
    }
  }
  choose_relay(state, relays, nics);
  for (const topo::HostNic& nic : state.identity.nics()) {
    nics.distances.push_back(nic.distance);
    // The slots then lie with the GPU next to the NIC.
    if (nics.relay >= 0 && nic.relay == nics.relay) relay_distances = &nic.from_relay;
  }
  if (relay_distances != nullptr) nics.distances = *relay_distances;
  return nics;
}

Connections::ChannelUses Connections::all_channels() const {
  ChannelUses all;
  for (int c = 0; c < plan_.channels; ++c) all.emplace(c, topo::EdgeUse::pair);
  return all;
}

Edge Connections::edge_of(int sender, int receiver, const ChannelUses& channels) const {
  const CommState& state = *Access::state(comm_);
  const int me = comm_.rank();
  Edge edge;
  edge.self = state.identity.peers()[me];
  edge.peer = state.identity.peers()[sender == me ? receiver : sender];
  edge.side = sender == me ? EdgeSide::sender : EdgeSide::receiver;
  edge.shape = {int(channels.size()), plan_.slot_count, plan_.slot_bytes};
  edge.id = edge_id(number_, sender, receiver);
  edge.polls_slots = needs_.polls_slots;
  edge.nics = nics_of(edge, channels);
  return edge;
}

Result<void> Connections::short_lines(int sender, int receiver, const char* transport,
                                      int bytes) const {
  Error error{Errc::not_supported,
              fmt::format("{} needs lines of {} bytes that land whole (from rank {} to rank {} "
                          "{} carries {}); use Simple or LL",
                          name_, needs_.line_bytes, sender, receiver, transport, bytes)};
  error.peer = sender == comm_.rank() ? receiver : sender;
  error.transport = transport;
  return fail(std::move(error));
}

Result<void> Connections::connect(const std::vector<PeerChannel>& from,
                                  const std::vector<PeerChannel>& to, const Result<void>& so_far) {
  CommState& state = *Access::state(comm_);
  const int me = comm_.rank();
  struct Half {
    int sender, receiver;
    ChannelUses channels{};
    std::unique_ptr<AnyEnd> end{};
  };
  // All ranks connect edges in one order. A rank then waits only for ranks that are at an earlier
  // edge, so no circle of waits forms.
  std::map<std::pair<int, int>, ChannelUses> wanted;
  const auto want = [&](int sender, int receiver, const PeerChannel& named) {
    const int peer = sender == me ? receiver : sender;
    if (peer == me || rows_.at(sender == me, named.channel, peer).slots != nullptr) return;
    wanted[{sender, receiver}].emplace(named.channel, named.use);
  };
  for (const PeerChannel& p : from) want(p.rank, me, p);
  for (const PeerChannel& p : to) want(me, p.rank, p);
  std::vector<Half> halves;
  for (const auto& [edge, channels] : wanted) {
    halves.push_back({edge.first, edge.second, channels});
  }

  const auto peer_of = [me](const Half& h) { return h.sender == me ? h.receiver : h.sender; };
  const auto short_of_lines = [&]() -> Result<void> {
    CCL_CHECK(so_far);
    if (broken_) return fail(*broken_);
    for (const Half& h : halves) {
      const EdgeTransport by = edge_transport(h.sender, h.receiver);
      if (by.line_bytes < needs_.line_bytes) {
        return short_lines(h.sender, h.receiver, by.transport, by.line_bytes);
      }
    }
    return {};
  };
  TransportContext context = transport_context(state, device_ ? &device_->arena : nullptr);
  std::vector<EdgeHandshake> rendezvous_points;
  for (Half& h : halves) {
    const Edge edge = edge_of(h.sender, h.receiver, h.channels);
    const auto offer = [&, edge]() -> Result<Handshake> {
      CCL_CHECK(transport_table_.can_connect(state.identity.peers()[h.sender],
                                             state.identity.peers()[h.receiver]));
      CCL_TRY(h.end, transport_table_.setup(context, edge));
      return h.end->handshake();
    };
    const auto connect = [&, edge](const Handshake& theirs) -> Result<void> {
      CCL_TRY(Connection made, h.end->connect(theirs));
      if (made.line_bytes < needs_.line_bytes) {
        return short_lines(h.sender, h.receiver, made.transport, made.line_bytes);
      }
      CCL_CHECK(check_wires(name_, made, edge));
      own(std::move(made), h.sender, h.receiver, h.channels);
      return {};
    };
    const char* const by = edge_transport(h.sender, h.receiver).transport;
    std::uint64_t channels = 0;
    for (const auto& [c, use] : h.channels) channels = channels * 4099 + std::uint64_t(c) + 1;
    rendezvous_points.push_back({peer_of(h), edge.id, offer, connect, by, channels});
  }
  const OnCpus near_gpu{state.device.cpus};
  const auto lock = state.rendezvous.lock();
  const std::size_t before = owners_.size();
  auto made =
      swap_handshakes(state, name_, transport_table_.name, short_of_lines(), rendezvous_points);
  // The memory of one rank may be full although all other ranks have their memory.
  if (made && device_) made = detail::all_agree(state, name_, upload());
  if (!made) {
    // Ranks have made different parts of these edges, so no edge can be made again.
    if (owners_.size() > before) broken_ = made.error();
  } else if (!halves.empty() && is_nccl_log_style()) {
    const bool rings = name_.find("Ring") != name_.npos, trees = name_.find("Tree") != name_.npos;
    if (rings || trees) {
      log_as_nccl(LogLevel::info, LogPart::init,
                  rings ? "Connected all rings" : "Connected all trees");
    }
  }
  return made;
}

EdgeTransport Connections::edge_transport(int sender, int receiver) const {
  const CommState& state = *Access::state(comm_);
  return transport_table_.edge_transport(state.identity.peers()[sender],
                                         state.identity.peers()[receiver]);
}

Result<void> Connections::connect_end(AnyEnd& end, int sender, int receiver,
                                      const Handshake& theirs) {
  CCL_TRY(Connection made, end.connect(theirs));
  if (made.line_bytes < needs_.line_bytes) {
    return short_lines(sender, receiver, made.transport, made.line_bytes);
  }
  CCL_CHECK(check_wires(name_, made, edge_of(sender, receiver, all_channels())));
  own(std::move(made), sender, receiver, all_channels());
  --missing_;
  return {};
}

void Connections::own(Connection connection, int sender, int receiver,
                      const ChannelUses& channels) {
  const int me = comm_.rank(), peer = sender == me ? receiver : sender;
  const bool proxied = connection.wires[0].proxied;
  {
    const std::lock_guard wires{wires_mutex_};
    std::size_t n = 0;
    for (const auto& [channel, use] : channels) {
      const bool moved = rows_.put(sender == me, channel, peer, connection.wires[n++]);
      if (moved && !device_) point_to_rows();
    }
  }
  const bool slots_here = connection.reads ? sender == me : receiver == me;
  if (!reserved_ && (slots_here || proxied)) {
    charge(plan_.slot_bytes * plan_.slot_count * Index(channels.size()));
  }
  (proxied ? tables_.proxied : tables_.unproxied) = true;
  log_info(LogPart::init, "{}: {} to {} by {}{}", name_, sender, receiver, connection.transport,
           connection.reads ? ", in read mode" : "");
  if (is_nccl_log_style() && log_enabled(LogLevel::info, LogPart::init)) {
    const EdgeNics nics = edge_of(sender, receiver, channels).nics;
    Result<std::vector<IbPortName>> ports;
    if (std::string_view{connection.transport} == "ib") ports = ib_port_names();
    std::size_t n = 0;
    for (const auto& [channel, use] : channels) {
      const int nic = n < nics.of_wire.size() ? nics.of_wire[n] : -1;
      const int port = nic < 0 || !ports ? -1 : port_of(nics.names[std::size_t(nic)], *ports);
      log_as_nccl(LogLevel::info, LogPart::init,
                  channel_line(comm_, channel, sender, receiver, connection.transport, port));
      ++n;
    }
  }
  count(connection, sender == me, 1);
  if (idle_) {
    idle_->keep(peer, sender == me, std::move(connection));
  } else {
    owners_.push_back(std::move(connection));
  }
}

}  // namespace ccl::detail
