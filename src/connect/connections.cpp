#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "base/call_bounds.hpp"
#include "base/made_once.hpp"
#include "comm/observe/call_counters.hpp"
#include "comm/state.hpp"
#include "connect/agreement.hpp"
#include "connect/device_state.hpp"
#include "connect/idle_pairs.hpp"
#include "gpu/order/graph_resources.hpp"
#include <unistd.h>

namespace ccl::detail {

namespace {
/// Sets `crowded`, which waiting threads read, if this host has more ranks than CPUs.
void look_for_room(const CommState& state) {
  const auto local = std::count_if(
      state.identity.peers().begin(), state.identity.peers().end(), [&](const PeerInfo& p) {
        return p.host_hash == state.identity.peers()[std::size_t(state.identity.rank())].host_hash;
      });
  if (local > ::sysconf(_SC_NPROCESSORS_ONLN)) crowded.store(true, std::memory_order_relaxed);
}
}  // namespace

Result<void> check_ready(const Communicator& comm) {
  return Access::state(comm)->ready();
}

Result<std::unique_lock<std::recursive_mutex>> creating_alone(const Communicator& comm,
                                                              const std::string& name) {
  CommState& state = *Access::state(comm);
  auto lock = state.rendezvous.try_to_create();
  if (lock.owns_lock()) return lock;
  Error error = state.annotate(
      {Errc::invalid_usage,
       fmt::format("a thread creates {} while another creates a composition of the same "
                   "communicator (all ranks must create the same ones in the same order); create "
                   "one after the other, or give each thread a communicator of its own",
                   name)});
  state.rendezvous.fail_all(error);
  return fail(std::move(error));
}

Connections::Connections(const Communicator& comm, const TransportTable& transport_table,
                         std::string name)
    : comm_{comm},
      transport_table_{transport_table},
      name_{std::move(name)},
      shown_name_{name_},
      operation_{CallCounters::operation_of(std::string_view{name_}.substr(0, name_.find('/')))} {}

std::shared_ptr<Connections> Connections::moved_from() {
  static constinit MadeOnce<Connections> one;
  Connections& connections = one.get([] {
    std::unique_ptr<Connections> made{
        new Connections{detail::Access::communicator(detail::moved_from()), TransportTable{},
                        "a collective that was moved from"}};
    made->number_ = -1;
    return made;
  });
  return {std::shared_ptr<void>{}, &connections};
}

Connections::~Connections() {
  CommState& state = *Access::state(comm_);
  state.observers.remove(this);
  idle_.reset();
  state.connections.open -= counted_;
  state.connections.bytes -= counted_bytes_;
  state.limits.used -= bytes_;
  if (!device_) return;
  for (Connection& one : owners_) device_->connections.push_back(std::move(one));
  state.device.order->retire(std::move(device_));
}

Result<void> Connections::reserve() {
  if (!device_ || !device_->holds_slots) return {};
  return device_->arena.reserve(std::size_t(slot_bytes_));
}

bool Connections::on_device() const {
  return Access::state(comm_)->device.gpu != nullptr;
}

int Connections::max_blocks() const {
  return Access::state(comm_)->device.max_blocks;
}

void Connections::count(const Connection& connection, bool sends, int by) {
  const Wire& wire = connection.wires[0];
  const bool slots_here = connection.reads ? sends : !sends;
  Index bytes = 0;
  if (slots_here || wire.proxied) {
    bytes = Index{wire.slot_count} * wire.slot_packets * Index(sizeof(Packet)) *
            Index(connection.wires.size());
  }
  const std::lock_guard lock{wires_mutex_};
  counted_ += by;
  counted_bytes_ += by * bytes;
  ConnectionCounts& all = Access::state(comm_)->connections;
  all.open += by;
  all.bytes += by * bytes;
  (by > 0 ? all.made : all.closed) += 1;
}

void Connections::charge(Index bytes) {
  bytes_ += bytes;
  Access::state(comm_)->limits.used += bytes;
}

namespace {
/// Applies the settings on channels to `plans` and checks them.
Result<Plans> with_channels(const Communicator& comm, const Result<Plans>& plans) {
  const CommState& state = *Access::state(comm);
  CCL_TRY(Plans all, plans);
  for (Plan& plan : all.by_medium) {
    if (state.identity.config().channels) {
      plan.channels = *state.identity.config().channels;
    } else if (!state.device.gpu) {  // on a GPU the settings limit blocks: see `Launch::on_device`
      plan.channels = std::min(plan.channels, state.limits.bounds.most.value_or(plan.channels));
      plan.channels = std::max(plan.channels, state.limits.bounds.least.value_or(plan.channels));
      plan.channels = CallBounds::within(plan.channels);
    }
    CCL_CHECK(check_plan(comm, plan));
  }
  return all;
}

AbortWatch watch_of(CommState& state, CallState& calls) {
  const Word deadline_ns = Word(state.limits.timeout_s * 1e9);
  if (state.device.gpu) {
    Watched& watched = state.device.gpu->watched();
    return {&watched.stop, &watched.lane_failure, deadline_ns, &watched.waits, 0};
  }
  return {reinterpret_cast<const Word*>(&state.status.word()), &calls.lane_failure, deadline_ns,
          &calls.waits, 0};
}
}  // namespace

Result<std::shared_ptr<Connections>> Connections::create(const Communicator& comm,
                                                         const Result<Plans>& plans, int fan,
                                                         const WireNeeds& needs,
                                                         const TransportTable& transport_table,
                                                         std::string name) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  free_graph_resources();
  Result<Plans> wanted = with_channels(comm, plans);
  const int ranks = comm.ranks();
  if (!wanted && ranks == 1) return fail(state.annotate(wanted.error()));
  auto connections = left_alone_by_forks(new Connections{comm, transport_table, std::move(name)});
  connections->number_ = state.rendezvous.next_composition();
  connections->needs_ = needs;
  connections->calls_.watch = watch_of(state, connections->calls_);
  if (wanted) connections->plan_ = wanted->by_medium[0];
  CCL_TRY(connections->connects_on_demand_, setting_flag("RUNTIME_CONNECT"));
  CCL_TRY(connections->idle_s_, setting_seconds("CONNECTION_IDLE"));
  if (ranks > 1) {
    if (state.device.gpu)
      connections->device_ = std::make_shared<DeviceState>(DeviceState{GpuArena{state.device.gpu}});
    if (auto done = connections->note_phases(); wanted && !done) wanted = fail(done.error());
    CCL_TRY(const AgreedPlan agreed,
            agree_on_plan(
                comm, wanted,
                {connections->name_, transport_table, std::max(1, std::min(fan, ranks - 1)),
                 connections->connects_on_demand_, needs.network_heads > 0, connections->idle_s_}));
    connections->plan_ = agreed.plan;
    connections->connects_on_demand_ = agreed.connects_on_demand;
    connections->idle_s_ = agreed.idle_s;
    connections->slot_bytes_ = slot_memory(agreed.plan, agreed.fan);
    if (connections->device_) connections->device_->holds_slots = agreed.holds_slots;
    look_for_room(state);
  }
  connections->place_channels();
  if (ranks == 1) return connections;
  state.observers.add(connections.get());
  return connections;
}

void Connections::place_channels() {
  if (needs_.exchanges || !on_device()) {
    cursors_.resize(2 * std::size_t(comm_.ranks()) * std::size_t(plan_.channels));
    tables_.cursors = cursors_.data();
  }
  rows_ = WireRows{comm_.ranks(), plan_.channels, needs_.exchanges};
  positions_ = PositionTable::make(comm_, plan_.channels);
  tables_.rings = positions_.rings.data();
  tables_.trees = positions_.trees.data();
  point_to_rows();
}

void Connections::point_to_rows() {
  tables_.in = rows_.in().data();
  tables_.out = rows_.out().data();
  tables_.column_of = rows_.column_of().empty() ? nullptr : rows_.column_of().data();
  tables_.columns = rows_.columns();
}

}  // namespace ccl::detail
