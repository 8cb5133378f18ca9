#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "comm/state.hpp"
#include "connect/device_state.hpp"
#include "comm/rank_results.hpp"
#include <unistd.h>

namespace ccl::detail {

namespace {
/// Tells those who will wait whether the ranks of this host have a CPU each.
void look_for_room(const CommState& state) {
  const auto local = std::count_if(state.peers.begin(), state.peers.end(), [&](const PeerInfo& p) {
    return p.host_hash == state.peers[std::size_t(state.rank)].host_hash;
  });
  if (local > ::sysconf(_SC_NPROCESSORS_ONLN)) crowded.store(true, std::memory_order_relaxed);
}
}  // namespace

Result<void> check_ready(const Communicator& comm) {
  return comm.state()->ready();
}

Result<std::unique_lock<std::recursive_mutex>> creating_alone(const Communicator& comm,
                                                              const std::string& name) {
  CommState& state = *comm.state();
  std::unique_lock lock{state.compositions_mutex, std::try_to_lock};
  if (lock.owns_lock()) return lock;
  Error error = state.blame(
      {Errc::invalid_usage,
       fmt::format("a thread creates {} while another creates a composition of the same "
                   "communicator (all ranks must create the same ones in the same order); create "
                   "one after the other, or give each thread a communicator of its own",
                   name)});
  state.fail_all(error);
  return fail(std::move(error));
}

Links::Links(const Communicator& comm, const Connector& connector, std::string name)
    : comm_{comm}, connector_{connector}, name_{std::move(name)} {}

std::shared_ptr<Links> Links::nobody() noexcept {
  static Links* const links = [] {
    auto* const made =
        new Links{Communicator{detail::nobody()}, Connector{}, "a collective that was moved from"};
    made->number_ = -1;
    return made;
  }();
  return {std::shared_ptr<void>{}, links};
}

Links::~Links() {
  {
    const std::lock_guard lock{comm_.state()->links_mutex};
    std::erase(comm_.state()->links, this);
  }
  comm_.state()->used -= bytes_;
  if (!device_) return;
  device_->connections = std::move(owners_);
  comm_.state()->order->retire(std::move(device_));
}

Result<void> Links::reserve() {
  if (!device_ || !device_->holds_slots) return {};
  return device_->arena.reserve(std::size_t(bytes_of(plan_)));
}

Result<void> Links::all_agree(const Result<void>& mine) {
  CommState& state = *comm_.state();
  const std::lock_guard lock{state.bootstrap_mutex};
  return detail::all_agree(state, name_, mine);
}

bool Links::on_device() const {
  return comm_.state()->gpu != nullptr;
}

Result<std::shared_ptr<Links>> Links::create(const Communicator& comm, const Result<Plans>& plans,
                                             int fan, const WireNeeds& needs,
                                             const Connector& connector, std::string name) {
  CommState& state = *comm.state();
  CCL_CHECK(state.ready());
  bury();
  const auto fitted = [&]() -> Result<Plans> {
    CCL_TRY(Plans all, plans);
    for (Plan& plan : all.by_through) {
      if (state.config.channels) {
        plan.channels = *state.config.channels;
      } else if (!state.gpu) {  // there, they are bounds on blocks: see `begin_on_device`
        plan.channels = std::min(plan.channels, state.bounds.most.value_or(plan.channels));
        plan.channels = std::max(plan.channels, state.bounds.least.value_or(plan.channels));
      }
      CCL_CHECK(check_plan(comm, plan));
    }
    return all;
  };
  const Result<Plans> wanted = fitted();
  if (!wanted && comm.ranks() == 1) return fail(state.blame(wanted.error()));
  auto links = left_alone_by_forks(new Links{comm, connector, std::move(name)});
  links->number_ = state.compositions.fetch_add(1);
  links->needs_ = needs;
  if (wanted) links->plan_ = wanted->by_through[0];
  CCL_TRY(links->opens_later_, setting_flag("RUNTIME_CONNECT"));
  const int ranks = comm.ranks();
  if (ranks > 1) {
    if (state.gpu) links->device_ = std::make_shared<OnDevice>(OnDevice{GpuArena{state.gpu}});
    links->fan_ = std::max(1, std::min(fan, ranks - 1));
    CCL_CHECK(links->agree(wanted));
  }
  const Plan& plan = links->plan_;
  links->cursors_.resize(2 * std::size_t(ranks) * plan.channels);
  links->tables_.cursors = links->cursors_.data();
  links->watch_ = {reinterpret_cast<const Word*>(&state.status.word()), &links->gave_up_,
                   Word(state.timeout_s * 1e9), &links->waits_, 0};
  if (state.gpu) {
    Watched& watched = state.gpu->watched();
    links->watch_ = {&watched.stop, &watched.gave_up, Word(state.timeout_s * 1e9), &watched.waits,
                     0};
  }
  links->in_.resize(std::size_t(ranks) * plan.channels);
  links->out_.resize(links->in_.size());
  if (ranks == 1) {
    links->rings_.resize(std::size_t(plan.channels));  // nobody to go to
    links->tables_.in = links->in_.data();
    links->tables_.out = links->out_.data();
    links->tables_.rings = links->rings_.data();
    return links;
  }
  look_for_room(state);

  links->take_rings();
  links->trees_.resize(plan.channels);
  links->connected_.resize(ranks);
  links->tables_ = {links->in_.data(), links->out_.data(), links->rings_.data(),
                    links->trees_.data(), links->cursors_.data()};
  const std::lock_guard lock{state.links_mutex};
  state.links.push_back(links.get());
  return links;
}

/// Channels take the rings of the topology in turn.
void Links::take_rings() {
  const topo::Arrangement& arrangement = comm_.state()->arrangement;
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
