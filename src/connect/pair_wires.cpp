// Wires between pairs of ranks, which are connected by the first call that needs them.
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/on_demand.hpp>

#include <memory>
#include <utility>

#include "comm/state.hpp"
#include "connect/agreement.hpp"
#include "connect/channel_uses.hpp"
#include "connect/idle_closer.hpp"
#include "connect/idle_pairs.hpp"

namespace ccl::detail {

Result<void> Connections::can_open(int sender, int receiver) const {
  const CommState& state = *Access::state(comm_);
  if (auto can = transport_table_.can_connect(state.identity.peers()[sender],
                                              state.identity.peers()[receiver]);
      !can) {
    Error error = std::move(can).error();
    error.peer = sender == comm_.rank() ? receiver : sender;
    if (error.transport.empty()) error.transport = transport_table_.name;
    return fail(std::move(error));
  }
  const EdgeTransport by = edge_transport(sender, receiver);
  if (by.line_bytes >= needs_.line_bytes) return {};
  return short_lines(sender, receiver, by.transport, by.line_bytes);
}

Result<void> Connections::connect_on_demand(const Result<void>& so_far) {
  const int me = comm_.rank();
  int wires = 0;
  const auto look = [&](int sender, int receiver) -> Result<void> {
    CCL_CHECK(can_open(sender, receiver));
    const bool network = edge_transport(sender, receiver).medium == Medium::network;
    tables_.proxied = tables_.proxied || network;
    wires += int(receiver == me || network);
    ++missing_;
    return {};
  };
  CommState& state = *Access::state(comm_);
  const auto look_at_all = [&]() -> Result<void> {
    CCL_CHECK(so_far);
    if (idle_s_ > 0) CCL_CHECK(IdleCloser::start(state));
    for (int p = 0; p < comm_.ranks(); ++p) {
      if (p == me) continue;
      CCL_CHECK(look(p, me));
      CCL_CHECK(look(me, p));
    }
    return {};
  };
  CCL_CHECK(agree_on_result(*this, look_at_all()));
  charge(slot_memory(plan_, wires));
  reserved_ = true;
  if (idle_s_ == 0) return {};
  idle_ = std::make_unique<IdlePairs>(*this, idle_s_);
  IdleCloser::of(state)->add(idle_.get());
  return {};
}

bool Connections::has_wire(int sender, int receiver) const {
  const int me = comm_.rank();
  if (sender == receiver) return true;
  const std::lock_guard lock{wires_mutex_};
  return rows_.at(sender == me, 0, sender == me ? receiver : sender).slots != nullptr;
}

std::unique_ptr<OnDemandConnect> Connections::open(const std::vector<int>& from,
                                                   const std::vector<int>& to) {
  if (missing_ == 0) return nullptr;
  const int me = comm_.rank();
  std::vector<std::pair<int, int>> edges;
  for (const int p : to) {
    if (!has_wire(me, p)) edges.emplace_back(me, p);
  }
  for (const int p : from) {
    if (!has_wire(p, me)) edges.emplace_back(p, me);
  }
  if (edges.empty()) return nullptr;
  return std::make_unique<OnDemandConnect>(*this, edges);
}

Result<std::unique_ptr<AnyEnd>> Connections::set_up(TransportContext& context, int sender,
                                                    int receiver) {
  return transport_table_.setup(context, edge_of(sender, receiver, all_channels()));
}

void Connections::remove_wires(int peer, bool sends) {
  const std::lock_guard lock{wires_mutex_};
  for (int c = 0; c < plan_.channels; ++c) (void)rows_.put(sends, c, peer, Wire{});
  ++missing_;
}

void Connections::enter_wires(int peer, bool sends, const Connection& connection) {
  const std::lock_guard lock{wires_mutex_};
  for (int c = 0; c < plan_.channels; ++c) {
    (void)rows_.put(sends, c, peer, connection.wires[std::size_t(c)]);
  }
  --missing_;
}

}  // namespace ccl::detail
