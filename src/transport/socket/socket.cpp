#include <ccl/transport/socket.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include "base/field_check.hpp"
#include "net/address.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/net_choice.hpp"
#include "transport/proxied/end.hpp"
#include "transport/socket/spread.hpp"
#include "transport/socket/stream.hpp"

namespace ccl {
namespace detail {
namespace {

/// True if a name of `EdgeNics`, such as "eth0" or "eth0+eth1", contains the interface.
bool contains(std::string_view nic, std::string_view interface) {
  while (!nic.empty()) {
    const std::string_view part = nic.substr(0, nic.find('+'));
    if (part.substr(0, part.find(':')) == interface) return true;
    nic.remove_prefix(std::min(part.size() + 1, nic.size()));
  }
  return false;
}

}  // namespace

Result<void> SocketLink::prepare() {
  CCL_TRY(nics, net::data_interfaces(max_listeners, context.reached_at));
  choose_listeners();
  CCL_TRY(const SocketSpread spread, socket_spread(nics.front().name));
  int threads = spread.threads + 1;
  if (polled) {
    CCL_TRY(const int movers, socket_movers(context.local_ranks));
    threads = std::max(threads, std::min(movers, edge.shape.channels));
  }
  engines.push_back(context.proxy);
  for (int n = 1; n < threads; ++n) engines.push_back(&context.proxy->further(n - 1));
  set_streams(spread.sockets() * int(nics.size()));  // each channel's large steps on all of them
  if (edge.side == EdgeSide::sender) arriving.resize(lines());
  enter();
  return {};
}

/// The first stream of a channel has all small steps: it takes the interface that the topology
/// chooses, if that is one of those in use. Channels of interfaces that count as one NIC take
/// turns.
void SocketLink::choose_listeners() {
  near.fill(any_listener);
  std::vector<std::size_t> turns(edge.nics.names.size());
  for (std::size_t c = 0; c < near.size() && c < edge.nics.of_wire.size(); ++c) {
    if (edge.nics.of_wire[c] < 0) continue;
    const auto nic = std::size_t(edge.nics.of_wire[c]);
    std::vector<std::uint8_t> parts;
    for (std::size_t n = 0; n < nics.size(); ++n) {
      if (contains(edge.nics.names[nic], nics[n].name)) parts.push_back(std::uint8_t(n));
    }
    if (!parts.empty()) near[c] = parts[turns[nic]++ % parts.size()];
  }
}

Result<std::vector<net::Address>> SocketLink::listeners() const {
  std::vector<net::Address> out;
  for (const net::Interface& nic : nics) out.push_back(nic.address);
  return out;
}

void SocketLink::prepare_wires() {
  if (polled) return;
  for (Wire& wire : wires) wire.zero_copy = &zero_copies.emplace_back(edge.shape.slot_count);
}

void SocketLink::set_streams(int count) {
  streams = count;
  done = std::make_unique<std::atomic<Word>[]>(lines());
  announced = std::make_unique<std::atomic<Word>[]>(std::size_t(edge.shape.channels));
}

void SocketLink::write_fields(Handshake& mine, HandshakeCursor& cursor) {
  // The lower rank's sockets are shared; its outgoing edge is first in every rank's order.
  const auto out = edge.self.rank < edge.peer.rank ? mate() : nullptr;
  if (out != nullptr && !opens_late && !out->answered_ && streams == 1 &&
      out->edge.shape == edge.shape) {
    out->offered_ = true;
  }
  cursor.put(mine, streams);
  cursor.put(mine, int(out != nullptr && out->offered_));
  cursor.put(mine, int(!opens_late));
  cursor.put(mine, near);
}

/// Both ends compute the same: each knows both ends' wanted numbers of streams, and the lower
/// rank's offer.
Result<void> SocketLink::read_fields(const Handshake& theirs, HandshakeCursor& cursor) {
  const int count = cursor.get<int>(theirs);
  const int flag = cursor.get<int>(theirs);
  const int shares = cursor.get<int>(theirs);
  near = cursor.get<decltype(near)>(theirs);
  FieldCheck check;
  check
      .in_range("number of streams", count, 1,
                Index(SocketSpread::max_sockets) * Index(max_listeners))
      .flag("offer of both directions", flag)
      .flag("use of shared sockets", shares);
  for (const std::uint8_t first : near) {
    if (first != any_listener) check.in_range("listener", first, 0, Index(max_listeners) - 1);
  }
  const std::string why = check.why();
  if (!why.empty()) {
    return fail(
        Errc::mismatch,
        fmt::format("the receiver's handshake is not one of the socket transport ({})", why));
  }
  set_streams(count);  // the receiver's choice
  const bool offered = flag != 0;
  const auto in = mate();
  lower_ = edge.self.rank < edge.peer.rank;
  answered_ = true;
  both_ways = count == 1 && in != nullptr && in->streams == 1 && (lower_ ? offered_ : offered) &&
              shares != 0 && !opens_late;
  return {};
}

Result<void> SocketLink::receive(const std::shared_ptr<SocketLink>& link) {
  for (int n = 0; n < int(link->lines()); ++n) {
    const int channel = n / link->streams, stream = n % link->streams;
    CCL_CHECK(link->engine_of(channel, stream).add(make_receive_stream(link, channel, stream)));
  }
  return {};
}

Result<void> SocketLink::send(const std::shared_ptr<SocketLink>& link, std::size_t line,
                              net::SecureSocket socket) {
  const int channel = int(line) / link->streams, stream = int(line) % link->streams;
  return link->engine_of(channel, stream)
      .add(make_send_stream(link, channel, stream, std::move(socket)));
}

void SocketLink::lend(std::size_t line, const net::SecureSocket& socket) {
  const auto back = mate();
  if (back == nullptr || line >= back->arriving.size()) return;
  net::SecureSocket own = socket.duplicate();
  if (!own) return fail_with(Errc::system, "cannot duplicate a socket", errno);
  both_ways = true;  // before either stream has its socket
  back->both_ways = true;
  if (back->arriving.put(line, own)) back->wake();
}

void SocketLink::wake() {
  for (ProxyEngine* const engine : engines) engine->wake();
}

template class ProxiedEnd<SocketLink>;

}  // namespace detail

Result<void> SocketTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  CCL_TRY(const std::string why, detail::net_excludes(name, from, to));
  if (why.empty()) return {};
  return fail(Errc::no_transport, fmt::format("socket does not connect rank {} to rank {} ({})",
                                              from.rank, to.rank, why));
}

Result<SocketTransport::End> SocketTransport::setup(TransportContext& context, const Edge& edge) {
  return End::make(context, edge);
}

}  // namespace ccl
