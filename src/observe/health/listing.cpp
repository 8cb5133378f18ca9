#include "observe/health/listing.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "comm/state.hpp"

namespace ccl::detail::health {
namespace {

CommView view_of(CommState& state, Word hash) {
  const Identity& identity = state.identity;
  CommView view;
  view.hash = hash;
  view.name = identity.config().name;
  view.asking = identity.rank();
  view.on_gpus = identity.config().device >= 0;
  view.first_host = identity.peers()[0].host_hash;
  view.first_pid = identity.peers()[0].pid_hash;
  view.ranks.resize(std::size_t(identity.ranks()));
  for (std::size_t r = 0; r < view.ranks.size(); ++r) {
    const PeerInfo& peer = identity.peers()[r];
    RankView& rank = view.ranks[r];
    rank.address = "127.0.0.1";
    rank.pid = peer.pid;
    rank.process = peer.pid_hash;
    rank.device = peer.device;
    rank.status.rank = int(r);
    rank.status.host = peer.host;
    rank.departed = state.status.has_departed(int(r));
  }
  RankView& mine = view.ranks[std::size_t(view.asking)];
  mine.health = health_of(state);
  mine.status = state.observers.status();
  return view;
}

}  // namespace

void Listing::add(CommState& state) {
  Entry entry{&state, state.identity.id(), {}, {}};
  if (const Bootstrap* const bootstrap = state.rendezvous.bootstrap()) {
    entry.asks.statuses = bootstrap->status_reader();
    entry.asks.addresses = bootstrap->address_reader();
  }
  all_.push_back(std::move(entry));
}

bool Listing::remove(const CommState& state) {
  return std::erase_if(all_, [&](const Entry& entry) { return entry.state == &state; }) != 0;
}

std::vector<Asked> Listing::asked() const {
  std::vector<Asked> out;
  std::set<Word> seen;
  for (const Entry& entry : all_) {
    if (!seen.insert(entry.hash).second) continue;
    Asked asked = entry.asks;
    asked.view = view_of(*entry.state, entry.hash);
    out.push_back(std::move(asked));
  }
  return out;
}

std::vector<CommMetrics> Listing::metrics() const {
  std::vector<CommMetrics> out;
  for (const Entry& entry : all_) {
    const CommState& state = *entry.state;
    CommMetrics of;
    of.hash = entry.hash;
    of.name = state.identity.config().name;
    of.rank = state.identity.rank();
    of.ranks = state.identity.ranks();
    of.nodes = state.identity.hosts();
    of.device = state.identity.config().device;
    const FlightRecorder* const recorder = state.observers.recorder();
    if (recorder != nullptr && of.device < 0) of.ns_per_tick = recorder->ns_per_tick();
    of.cells = cells_of(state.observers.counters());
    const ConnectionCounts& connections = state.connections;
    of.connections = {connections.open.load(), connections.bytes.load(), connections.made.load(),
                      connections.closed.load()};
    of.waits = entry.waits;
    out.push_back(std::move(of));
  }
  return out;
}

void Listing::sample() {
  for (Entry& entry : all_) {
    if (entry.state->identity.config().device >= 0) continue;  // a GPU reports only waits
    const RankStatus status = entry.state->observers.status(0);
    const Operation* const op = status.running();
    if (op == nullptr) continue;
    const std::string_view what{op->what};
    auto& [running, waiting] =
        entry.waits.by_operation[std::string{what.substr(0, what.find('/'))}];
    ++running;
    if (status.waits.peer >= 0) ++waiting;
  }
}

}  // namespace ccl::detail::health
