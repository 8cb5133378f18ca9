#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "connect/device_state.hpp"
#include <unistd.h>

namespace ccl::detail {

namespace {
/// Tells those who will wait whether the ranks of this host have a CPU each.
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
    : comm_{comm}, transport_table_{transport_table}, name_{std::move(name)} {}

std::shared_ptr<Connections> Connections::moved_from() noexcept {
  static Connections* const connections = [] {
    auto* const made = new Connections{detail::Access::communicator(detail::moved_from()),
                                       TransportTable{}, "a collective that was moved from"};
    made->number_ = -1;
    return made;
  }();
  return {std::shared_ptr<void>{}, connections};
}

Connections::~Connections() {
  { Access::state(comm_)->observers.remove(this); }
  Access::state(comm_)->limits.used -= bytes_;
  if (!device_) return;
  device_->connections = std::move(owners_);
  Access::state(comm_)->device.order->retire(std::move(device_));
}

Result<void> Connections::reserve() {
  if (!device_ || !device_->holds_slots) return {};
  return device_->arena.reserve(std::size_t(bytes_of(plan_)));
}

Result<void> Connections::all_agree(const Result<void>& mine) {
  CommState& state = *Access::state(comm_);
  const auto lock = state.rendezvous.lock();
  return detail::all_agree(state, name_, mine);
}

bool Connections::on_device() const {
  return Access::state(comm_)->device.gpu != nullptr;
}

Result<std::shared_ptr<Connections>> Connections::create(const Communicator& comm,
                                                         const Result<Plans>& plans, int fan,
                                                         const WireNeeds& needs,
                                                         const TransportTable& transport_table,
                                                         std::string name) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  bury();
  const auto fitted = [&]() -> Result<Plans> {
    CCL_TRY(Plans all, plans);
    for (Plan& plan : all.by_medium) {
      if (state.identity.config().channels) {
        plan.channels = *state.identity.config().channels;
      } else if (!state.device.gpu) {  // there, they are bounds on blocks: see `begin_on_device`
        plan.channels = std::min(plan.channels, state.limits.bounds.most.value_or(plan.channels));
        plan.channels = std::max(plan.channels, state.limits.bounds.least.value_or(plan.channels));
      }
      CCL_CHECK(check_plan(comm, plan));
    }
    return all;
  };
  const Result<Plans> wanted = fitted();
  if (!wanted && comm.ranks() == 1) return fail(state.annotate(wanted.error()));
  auto connections = left_alone_by_forks(new Connections{comm, transport_table, std::move(name)});
  connections->number_ = state.rendezvous.next_composition();
  connections->needs_ = needs;
  if (wanted) connections->plan_ = wanted->by_medium[0];
  CCL_TRY(connections->connects_on_demand_, setting_flag("RUNTIME_CONNECT"));
  const int ranks = comm.ranks();
  if (ranks > 1) {
    if (state.device.gpu)
      connections->device_ = std::make_shared<OnDevice>(OnDevice{GpuArena{state.device.gpu}});
    connections->fan_ = std::max(1, std::min(fan, ranks - 1));
    CCL_CHECK(connections->agree(wanted));
  }
  const Plan& plan = connections->plan_;
  connections->cursors_.resize(2 * std::size_t(ranks) * plan.channels);
  connections->tables_.cursors = connections->cursors_.data();
  connections->watch_ = {reinterpret_cast<const Word*>(&state.status.word()),
                         &connections->lane_failure_, Word(state.limits.timeout_s * 1e9),
                         &connections->waits_, 0};
  if (state.device.gpu) {
    Watched& watched = state.device.gpu->watched();
    connections->watch_ = {&watched.stop, &watched.lane_failure, Word(state.limits.timeout_s * 1e9),
                           &watched.waits, 0};
  }
  connections->in_.resize(std::size_t(ranks) * plan.channels);
  connections->out_.resize(connections->in_.size());
  if (ranks == 1) {
    connections->rings_.resize(std::size_t(plan.channels));  // nobody to go to
    connections->tables_.in = connections->in_.data();
    connections->tables_.out = connections->out_.data();
    connections->tables_.rings = connections->rings_.data();
    return connections;
  }
  look_for_room(state);

  connections->take_rings();
  connections->trees_.resize(plan.channels);
  connections->connected_.resize(ranks);
  connections->tables_ = {connections->in_.data(), connections->out_.data(),
                          connections->rings_.data(), connections->trees_.data(),
                          connections->cursors_.data()};
  state.observers.add(connections.get());
  return connections;
}

/// Channels take the rings of the topology in turn.
void Connections::take_rings() {
  const topo::Arrangement& arrangement = Access::state(comm_)->identity.arrangement();
  const int ranks = comm_.ranks(), ways = std::min(arrangement.ring_count(), plan_.channels);
  std::vector<int> places;
  order_.reserve(std::size_t(ways) * ranks);
  for (int way = 0; way < ways; ++way) {
    const std::vector<int>& ring = arrangement.ring(way);
    places.push_back(int(std::find(ring.begin(), ring.end(), comm_.rank()) - ring.begin()));
    order_.insert(order_.end(), ring.begin(), ring.end());
  }
  for (int c = 0; c < plan_.channels; ++c) {
    rings_.push_back({places[std::size_t(c % ways)], ranks, order_.data() + c % ways * ranks});
  }
}

}  // namespace ccl::detail
