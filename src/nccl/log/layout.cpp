#include "nccl/log/layout.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/topo/arrange.hpp>
#include <ccl/transport/any_of.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "base/log_style.hpp"
#include "comm/state.hpp"
#include "net/address.hpp"
#include "transport/ib/verbs/presence.hpp"
#include "transport/plug_in/presence.hpp"

namespace ccl::detail::nccl {
namespace {

/// Lines that NCCL gives two subsystems.
constexpr LogPart init_or_net = LogPart(std::uint32_t(LogPart::init) | std::uint32_t(LogPart::net));

void say(LogPart part, const std::string& text) {
  log_as_nccl(LogLevel::info, part, text);
}

/// Returns "eth0:10.0.0.1<0>".
std::string text_of(const net::Interface& one) {
  const std::string at = one.address.to_string();
  return fmt::format("{}:{}<0>", one.name, at.substr(0, at.rfind(':')));
}

std::string interfaces() {
  const auto all = net::data_interfaces(8, {});
  std::string text;
  for (std::size_t n = 0; all && n < all->size(); ++n) {
    text += fmt::format("{}[{}]{}", n == 0 ? "" : " ", n, text_of((*all)[n]));
  }
  return text;
}

void log_ports() {
  const auto ports = ib_port_names();
  if (!ports || ports->empty()) return say(init_or_net, "NET/IB : No device found.");
  const auto outside = net::local_interface();
  std::string text;
  for (std::size_t n = 0; n < ports->size(); ++n) {
    const IbPortName& port = (*ports)[n];
    text += fmt::format("{}[{}]{}:{}/{}", n == 0 ? "" : " ", n, port.device, port.number,
                        port.infiniband ? "IB" : "RoCE");
  }
  say(init_or_net,
      fmt::format("NET/IB : Using {}; OOB {}", text, outside ? text_of(*outside) : std::string{}));
}

template <class T>
bool serves(const PeerInfo& me) {
  return may_choose(T::name) && T::can_connect(me, me);
}

/// Name of the network that connects the rank with others like it; empty: the settings allow none.
std::string network_of(const PeerInfo& me) {
  if (serves<IbTransport>(me)) return "IB";
  if (serves<PluginTransport>(me)) return net_plug_in_name();
  return serves<SocketTransport>(me) ? "Socket" : "";
}

void log_networks(const PeerInfo& me) {
  if (!log_enabled(LogLevel::info, init_or_net)) return;
  static std::atomic<bool> listed{false};
  if (!listed.exchange(true)) {
    const auto plug_in = net_plug_in_presence();
    if (plug_in && plug_in->plug_in != nullptr) {
      say(init_or_net, fmt::format("NET/Plugin: Loaded net plugin {} (v{})",
                                   plug_in->plug_in->name(), plug_in->plug_in->version()));
    } else if (plug_in && plug_in->absence == NetPlugInAbsence::not_found) {
      say(init_or_net,
          "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.");
    }
    log_ports();
    if (const std::string all = interfaces(); !all.empty()) {
      say(init_or_net, "NET/Socket : Using " + all);
    }
  }
  if (const std::string network = network_of(me); !network.empty()) {
    say(init_or_net, "Using network " + network);
  }
}

void log_rings(const topo::Arrangement& all, int rank) {
  const int channels = all.ring_count();
  for (int c = 0; c < channels; ++c) {
    const auto& ring = all.ring(c);
    const auto at = std::find(ring.begin(), ring.end(), rank);
    if (at == ring.end()) continue;
    const int next = at + 1 == ring.end() ? ring.front() : at[1];
    const int before = at == ring.begin() ? ring.back() : at[-1];
    say(LogPart::graph, fmt::format("Ring {:02} : {} -> {} -> {}", c, before, rank, next));
    if (rank != 0) continue;
    std::string order;
    for (const int r : ring) order += fmt::format(" {:4}", r);
    say(LogPart::init, fmt::format("Channel {:02}/{:02} :{}", c, channels, order));
  }
}

}  // namespace

void log_layout(const Communicator& comm) {
  if (!log_enabled(LogLevel::info,
                   LogPart(std::uint32_t(init_or_net) | std::uint32_t(LogPart::graph)))) {
    return;
  }
  const CommState& state = *Access::state(comm);
  const int rank = comm.rank();
  log_networks(comm.peer(rank));
  const topo::Arrangement& all = state.identity.arrangement();
  if (comm.ranks() < 2) return;
  log_rings(all, rank);
  std::string trees;
  for (int c = 0; c < all.tree_count(); ++c) {
    const TreePosition at = all.tree(rank, -1, c);
    trees +=
        fmt::format(" [{}] {}/{}/{}->{}->{}", c, at.down[0], at.down[1], at.down[2], rank, at.up);
  }
  if (!trees.empty()) say(LogPart::init, "Trees" + trees);
  say(LogPart::init, fmt::format("{} coll channels", all.ring_count()));
}

}  // namespace ccl::detail::nccl
