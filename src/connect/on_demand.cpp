#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/on_demand.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/exceptions.hpp"
#include "base/field_check.hpp"
#include "base/thread.hpp"
#include "comm/edges/edge_handshake.hpp"
#include "comm/state.hpp"
#include "net/socket.hpp"

namespace ccl::detail {
namespace {

/// Messages of both ends of an edge, in this order. An end that has received a greeting sends none.
///
/// An end is set up only when its peer waits for it, because a peer may be late and the end has a
/// deadline. A greeting with `back` also counts for the opposite edge, because two ends that are
/// set up together may share a connection.
enum class Step : int { greeting, offer, made };
struct OpenReply {
  Step what = Step::greeting;
  int back = 0;  // 1: the sender also needs the opposite edge in the same call
  Offer offer{};
};

}  // namespace

struct OnDemandConnect::Edge {
  int sender = 0, receiver = 0;
  std::uint64_t id = 0;
  int peer = -1;
  bool sends = false;
  Edge* back = nullptr;  // opposite edge, if this call makes both
  std::unique_ptr<AnyEnd> end{};
  bool greeted = false, made = false, peer_made = false;
  std::optional<net::Deadline> due{};  // counted from the time at which the peer waits
  bool done() const { return made && peer_made; }
};

struct OnDemandConnect::Progress {
  std::atomic<bool> stop{false};
  std::atomic<int> missing{0};
  std::mutex mutex{};  // guards `more`
  std::condition_variable more{};
  std::thread thread{};
};

OnDemandConnect::OnDemandConnect(Connections& connections,
                                 const std::vector<std::pair<int, int>>& edges)
    : connections_{connections}, progress_{std::make_unique<Progress>()} {
  const int me = connections.comm().rank(), ranks = connections.comm().ranks();
  for (auto& of : there_) of.assign(std::size_t(ranks), 0);
  for (int p = 0; p < ranks; ++p) {
    there_[0][std::size_t(p)] = connections.has_wire(p, me);
    there_[1][std::size_t(p)] = connections.has_wire(me, p);
  }
  for (const auto& [sender, receiver] : edges) {
    Edge edge;
    edge.sender = sender;
    edge.receiver = receiver;
    edge.id = edge_id(connections.number(), sender, receiver);
    edge.sends = sender == me;
    edge.peer = edge.sends ? receiver : sender;
    edges_.push_back(std::move(edge));
  }
  progress_->missing.store(int(edges_.size()));
  std::map<int, Edge*> first;  // first edge to each peer; `edges_` does not move
  for (Edge& edge : edges_) {
    const auto [other, none] = first.try_emplace(edge.peer, &edge);
    if (none) continue;
    edge.back = other->second;
    other->second->back = &edge;
  }
  // A launch whose lanes are left behind waits for this thread, which uses the communicator.
  LaneScope* const lanes = this_thread_facts.lanes;
  if (lanes != nullptr) lanes->running.fetch_add(1);
  auto thread = own_thread("the opening of connections", [this, lanes] {
    run();
    if (lanes != nullptr) lanes->running.fetch_sub(1);
  });
  if (thread) {
    progress_->thread = *std::move(thread);
  } else {  // lanes stop when the communicator fails
    if (lanes != nullptr) lanes->running.fetch_sub(1);
    Access::state(connections.comm())->rendezvous.fail_all(std::move(thread).error());
  }
}

OnDemandConnect::~OnDemandConnect() {
  progress_->stop.store(true, std::memory_order_relaxed);
  if (progress_->thread.joinable()) progress_->thread.join();
}

bool OnDemandConnect::IdleScope::idle() {
  OnDemandConnect& of = opening_;
  const int missing = of.progress_->missing.load();
  if (missing == 0) return before_.run != nullptr && before_.run(before_.context);
  // Steps that lanes have posted wake no thread. The peer may need them before it can call the rank
  // whose wire is missing, so this thread moves them. It never blocks on the proxy's descriptors.
  if (Access::state(of.connections_.comm())->proxy.help(true)) return true;
  // The connecting thread needs this core more. At most 1 ms, because data on existing wires wakes
  // no thread.
  std::unique_lock lock{of.progress_->mutex};
  return of.progress_->more.wait_for(lock, std::chrono::milliseconds{1},
                                     [&] { return of.progress_->missing.load() < missing; });
}

void OnDemandConnect::finish() {
  if (connections_.calls().lane_failure.peer != 0)
    progress_->stop.store(true, std::memory_order_relaxed);
  // If lanes have moved everything, no wire is missing.
  const auto missing = [](const std::vector<Word>& there, int peer) {
    return HostMemory::load_acquire(&there[std::size_t(peer)]) == 0;
  };
  for (const Edge& edge : edges_) {
    if (missing(there_[edge.sends], edge.peer))
      progress_->stop.store(true, std::memory_order_relaxed);
  }
  if (progress_->thread.joinable()) progress_->thread.join();
}

/// Steps of the connecting thread.
struct OnDemandConnect::Steps {
  explicit Steps(OnDemandConnect& opened)
      : of{opened},
        state{*Access::state(opened.connections_.comm())},
        bootstrap{*state.rendezvous.bootstrap()},
        context{transport_context(state, nullptr)} {}

  /// Runs until all edges are done, the communicator fails, or the call stops.
  void run();
  void fail_edge(const Edge& edge, Error error);
  Result<void> say(const Edge& edge, Step what, const Offer& offer = {});
  Result<void> offer(Edge& edge);
  Result<void> offer_both(Edge& edge, bool both);
  Result<void> connect(Edge& edge, const Offer& theirs);
  /// Handles a message of the edge's peer.
  Result<void> accept(Edge& edge, const std::vector<std::byte>& text);
  /// Handles all messages that arrive within `limit_s` seconds. Returns false after a failure.
  bool listen(double limit_s);
  /// Greets the peers that have not sent a greeting. Returns false after a failure.
  bool greet();
  /// Returns the edge whose deadline has passed; null if there is none.
  const Edge* overdue_edge() const;

  OnDemandConnect& of;
  CommState& state;
  Bootstrap& bootstrap;
  TransportContext context;
  std::vector<Bootstrap::Source> sources{};
};

void OnDemandConnect::Steps::fail_edge(const Edge& edge, Error error) {
  error = root_cause(state, std::move(error));
  // The peer may itself wait for a rank that is stopped.
  if (error.code == Errc::timed_out) {
    if (error.peer < 0) error.peer = edge.peer;
    error = state.rendezvous.without_answer(std::move(error));
  }
  if (error.peer < 0) error.peer = edge.peer;
  if (error.transport.empty()) error.transport = of.connections_.transport_table_.name;
  if (state.status.ok()) state.rendezvous.fail_all(std::move(error));
}

Result<void> OnDemandConnect::Steps::say(const Edge& edge, Step what, const Offer& offer) {
  const OpenReply said{what, int(edge.back != nullptr), offer};
  return bootstrap.send(edge.peer, edge.id, &said, Index{sizeof said}, state.limits.timeout_s);
}

Result<void> OnDemandConnect::Steps::offer(Edge& edge) {
  if (edge.end) return {};
  edge.due = net::Deadline::after(context.deadline_s);
  CCL_TRY(edge.end, of.connections_.set_up(context, edge.sender, edge.receiver));
  return say(edge, Step::offer,
             {edge.end->handshake(),
              of.connections_.edge_transport(edge.sender, edge.receiver).transport});
}

// The sender's end first, because the receiver's offer may share its connection.
Result<void> OnDemandConnect::Steps::offer_both(Edge& edge, bool both) {
  Edge* const back = both ? edge.back : nullptr;
  if (back != nullptr && back->sends) CCL_CHECK(offer(*back));
  CCL_CHECK(offer(edge));
  return back != nullptr ? offer(*back) : Result<void>{};
}

Result<void> OnDemandConnect::Steps::connect(Edge& edge, const Offer& theirs) {
  CCL_CHECK(check_same_transport(
      theirs, edge.peer, of.connections_.edge_transport(edge.sender, edge.receiver).transport,
      state.identity.rank()));
  CCL_CHECK(of.connections_.connect_end(*edge.end, edge.sender, edge.receiver, theirs.handshake));
  HostMemory::store_release(&of.there_[edge.sends][std::size_t(edge.peer)], Word{1});
  edge.made = true;
  {
    const std::lock_guard lock{of.progress_->mutex};
    of.progress_->missing.fetch_sub(1);
  }
  of.progress_->more.notify_all();
  return say(edge, Step::made);
}

Result<void> OnDemandConnect::Steps::accept(Edge& edge, const std::vector<std::byte>& text) {
  OpenReply said;
  FieldCheck check;
  check.in_range("length of a step", text.size(), sizeof said, sizeof said);
  if (check.good()) {
    std::memcpy(&said, text.data(), sizeof said);
    check.in_range("step", int(said.what), int(Step::greeting), int(Step::made))
        .flag("need of the opposite edge", said.back)
        .text("transport", said.offer.by)
        .require(said.what != Step::made || edge.end != nullptr,
                 "an edge that is not begun is made")
        .require(said.what != Step::offer || !edge.made, "an edge is offered twice");
  }
  if (!check.good()) return state.rendezvous.break_off(edge.peer, check.why());
  switch (said.what) {
    case Step::greeting:
      return offer_both(edge, said.back != 0);
    case Step::offer:
      CCL_CHECK(offer_both(edge, said.back != 0));
      return connect(edge, said.offer);
    case Step::made:
      edge.peer_made = true;
      return {};
  }
  return {};
}

bool OnDemandConnect::Steps::listen(double limit_s) {
  sources.clear();
  for (const Edge& edge : of.edges_) {
    if (!edge.done()) sources.push_back({edge.peer, edge.id});
  }
  for (const auto& [from, text] : bootstrap.recv_any(sources, limit_s)) {
    const auto edge = std::find_if(
        of.edges_.begin(), of.edges_.end(),
        [&from = from](const Edge& e) { return e.peer == from.peer && e.id == from.tag; });
    if (auto well = accept(*edge, text); !well) {
      fail_edge(*edge, std::move(well).error());
      return false;
    }
    edge->greeted = true;
    if (edge->back != nullptr) edge->back->greeted = true;
  }
  return true;
}

bool OnDemandConnect::Steps::greet() {
  for (Edge& edge : of.edges_) {
    if (!state.status.ok()) return false;
    if (edge.greeted) continue;
    if (auto well = say(edge, Step::greeting); !well) {
      fail_edge(edge, std::move(well).error());
      return false;
    }
    if (edge.back != nullptr) edge.back->greeted = true;
  }
  return true;
}

const OnDemandConnect::Edge* OnDemandConnect::Steps::overdue_edge() const {
  for (const Edge& edge : of.edges_) {
    if (!edge.done() && edge.due && edge.due->passed()) return &edge;
  }
  return nullptr;
}

void OnDemandConnect::Steps::run() {
  // A failure while listening for the first time shows in the status, which `greet` checks.
  (void)listen(0);
  if (!greet()) return;
  const auto done = [](const Edge& edge) { return edge.done(); };
  while (!std::all_of(of.edges_.begin(), of.edges_.end(), done)) {
    if (!state.status.ok() || of.progress_->stop.load(std::memory_order_relaxed)) return;
    (void)listen(0.02);
    if (const Edge* const edge = overdue_edge(); edge != nullptr) {
      return fail_edge(
          *edge,
          {Errc::timed_out,
           fmt::format("the wire from rank {} to rank {} was not made within {} s (rank {} has "
                       "begun to, and is slow or stopped); look there, or raise CCL_INIT_TIMEOUT",
                       edge->sender, edge->receiver, context.deadline_s, edge->peer)});
    }
  }
}

void OnDemandConnect::run() {
  const auto ran = completion_of([this] { Steps{*this}.run(); });
  // Lanes stop when the communicator fails.
  if (!ran) Access::state(connections_.comm())->rendezvous.fail_all(ran.error());
}

}  // namespace ccl::detail
