#include <ccl/collective.hpp>
#include <ccl/links.hpp>
#include <ccl/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "comm_state.hpp"
#include <unistd.h>

namespace ccl::detail {
namespace {
constexpr Index smallest_slot = 1024;  // bytes

/// Both ends of an edge give it the same number; one for each composition and direction.
std::uint64_t edge_id(int composition, int sender, int receiver) {
  return std::uint64_t(composition) << 40 | std::uint64_t(sender) << 20 | std::uint64_t(receiver);
}

Result<void> check_plan(const Plan& plan) {
  const auto power_of_two = [](Index n) { return n > 0 && (n & (n - 1)) == 0; };
  if (plan.channels >= 1 && plan.channels <= 64 && power_of_two(plan.slot_count) &&
      plan.slot_count >= 2 && plan.slot_bytes > 0 && plan.slot_bytes % 128 == 0 &&
      plan.slice_steps >= 1 && plan.chunk_steps % plan.slice_steps == 0 &&
      power_of_two(plan.slice_steps) && plan.slot_count >= 2 * plan.slice_steps &&
      plan.chunk_steps >= plan.slice_steps) {
    return {};
  }
  return fail(
      Errc::invalid_argument,
      fmt::format("a plan of {} channels, {} slots of {} bytes, slices of {} and chunks of "
                  "{} steps cannot be (1 to 64 channels; slots a power of two, at least two "
                  "slices; slot bytes a multiple of 128; chunks whole slices)",
                  plan.channels, plan.slot_count, plan.slot_bytes, plan.slice_steps,
                  plan.chunk_steps));
}

/// Tells those who will wait whether the ranks of this host have a CPU each.
void look_for_room(const CommState& state) {
  const auto local = std::count_if(state.peers.begin(), state.peers.end(), [&](const PeerInfo& p) {
    return p.host_hash == state.peers[std::size_t(state.rank)].host_hash;
  });
  if (local > ::sysconf(_SC_NPROCESSORS_ONLN)) crowded.store(true, std::memory_order_relaxed);
}
}  // namespace

Links::Links(const Communicator& comm, Plan plan, const Connector& connector, std::string name)
    : comm_{comm}, plan_{plan}, connector_{connector}, name_{std::move(name)} {}

Links::~Links() {
  {
    const std::lock_guard lock{comm_.state()->links_mutex};
    std::erase(comm_.state()->links, this);
  }
  comm_.state()->used -= bytes_;
}

Result<std::shared_ptr<Links>> Links::create(const Communicator& comm, Plan plan, int fan,
                                             const Connector& connector, std::string name) {
  CommState& state = *comm.state();
  CCL_CHECK(state.ready());
  if (state.config.channels) plan.channels = *state.config.channels;
  if (auto good = check_plan(plan); !good) return fail(state.blame(std::move(good).error()));
  if (state.config.device >= 0) {
    return fail(state.blame({Errc::no_device_code,
                             fmt::format("{} has no kernel in this program (the communicator is on "
                                         "device {}); include <ccl/ccl.cuh> where it is named",
                                         name, state.config.device)}));
  }
  auto links = std::shared_ptr<Links>{new Links{comm, plan, connector, std::move(name)}};
  links->number_ = state.compositions.fetch_add(1);
  const int ranks = comm.ranks();
  if (ranks == 1) return links;
  look_for_room(state);

  // Slots shrink until this composition takes at most a quarter of the budget, and what is left.
  // All ranks take the smallest that any of them needs.
  const auto bytes_of = [&](Index slot) {
    return slot * plan.slot_count * plan.channels * std::max(1, std::min(fan, ranks - 1));
  };
  const Index left = std::min(state.budget / 4, state.budget - state.used.load());
  Index slot = plan.slot_bytes;
  while (slot > smallest_slot && bytes_of(slot) > left) slot = slot / 2 / 128 * 128;
  std::vector<Index> slots(ranks);
  slots[comm.rank()] = bytes_of(slot) > left ? -1 : slot;
  {
    const std::lock_guard lock{state.bootstrap_mutex};
    auto all = state.bootstrap->all_gather(slots.data(), Index{sizeof(Index)});
    if (!all) return fail(state.blame(std::move(all).error()));
  }
  const auto least = std::min_element(slots.begin(), slots.end());
  if (*least < 0) {
    return fail(state.blame(
        {Errc::over_budget,
         fmt::format("{} needs {} bytes for its smallest slots on rank {} (the budget is {}, of "
                     "which {} are used here); raise CCL_MEMORY_BUDGET or drop a composition",
                     links->name_, bytes_of(smallest_slot), least - slots.begin(), state.budget,
                     state.used.load()),
         -1, int(least - slots.begin())}));
  }
  if (*least < plan.slot_bytes) {
    log_info(LogPart::init, "{}: slots of {} bytes instead of {}, to fit the memory budget",
             links->name_, *least, plan.slot_bytes);
  }
  links->plan_.slot_bytes = *least;

  links->in_.resize(std::size_t(ranks) * plan.channels);
  links->out_.resize(links->in_.size());
  links->order_.resize(ranks);
  std::iota(links->order_.begin(), links->order_.end(), 0);
  links->rings_.assign(plan.channels, RingSeat{comm.rank(), ranks, links->order_.data()});
  links->trees_.resize(plan.channels);
  links->watch_ = {reinterpret_cast<const Word*>(&state.status.word()), &links->gave_up_,
                   Word(state.timeout_s * 1e9), &links->waits_};
  const std::lock_guard lock{state.links_mutex};
  state.links.push_back(links.get());
  return links;
}

void Links::seats_for(int root, bool double_tree) {
  for (int c = 0; c < int(trees_.size()); ++c) {
    trees_[c] = double_binary_tree(comm_.rank(), comm_.ranks(), root, double_tree ? c % 2 : 0);
  }
}

Result<void> Links::connect(const std::vector<int>& from, const std::vector<int>& to) {
  CommState& state = *comm_.state();
  const int me = comm_.rank(), ranks = comm_.ranks();
  struct Half {
    int sender, receiver;
    std::unique_ptr<AnyEnd> end;
  };
  std::vector<Half> halves;
  const auto want = [&](int sender, int receiver) {
    const int peer = sender == me ? receiver : sender;
    const auto& table = sender == me ? out_ : in_;
    if (peer == me || table[peer].slots != nullptr) return;
    for (const Half& h : halves) {
      if (h.sender == sender && h.receiver == receiver) return;
    }
    halves.push_back({sender, receiver, nullptr});
  };
  for (const int p : from) want(p, me);
  for (const int p : to) want(me, p);
  if (halves.empty()) return {};
  // One order for all ranks: whoever waits for an edge waits for a rank that is at an edge before
  // it, so that nobody waits in a circle.
  std::sort(halves.begin(), halves.end(), [](const Half& a, const Half& b) {
    return std::pair{a.sender, a.receiver} < std::pair{b.sender, b.receiver};
  });

  const std::lock_guard lock{state.bootstrap_mutex};
  TransportContext context;
  context.proxy = &state.proxy;
  context.status = &state.status;
  context.secret = state.bootstrap->secret();
  context.deadline_s = state.init_timeout_s;
  const auto peer_of = [me](const Half& h) { return h.sender == me ? h.receiver : h.sender; };
  const auto named = [&](Error error, int peer) {
    // A peer that hangs up may only have heard sooner of a rank that died: the bootstrap knows
    // whom.
    const auto verdict_due = std::chrono::steady_clock::now() + std::chrono::seconds{2};
    while ((error.code == Errc::peer_lost || error.code == Errc::network) && state.status.ok() &&
           std::chrono::steady_clock::now() < verdict_due) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    if (auto well = state.status.result(); !well) error = std::move(well).error();
    helper_.reset();
    state.journal->ended(info_.ticket, false);
    if (error.peer < 0) error.peer = peer;  // a rank that was lost is named already
    if (error.transport.empty()) error.transport = connector_.name;
    return fail(state.blame(std::move(error)));
  };
  for (Half& h : halves) {
    const int peer = peer_of(h);
    if (auto can = connector_.can_connect(state.peers[h.sender], state.peers[h.receiver]); !can) {
      return named(std::move(can).error(), peer);
    }
    Edge edge;
    edge.self = state.peers[me];
    edge.peer = state.peers[peer];
    edge.side = h.sender == me ? Side::sender : Side::receiver;
    edge.shape = {plan_.channels, plan_.slot_count, plan_.slot_bytes};
    edge.id = edge_id(number_, h.sender, h.receiver);
    auto end = connector_.setup(context, edge);
    if (!end) return named(std::move(end).error(), peer);
    h.end = *std::move(end);
    const Handshake mine = h.end->handshake();
    auto sent = state.bootstrap->send(peer, edge.id, mine.data(), Index(mine.size()));
    if (!sent) return named(std::move(sent).error(), peer);
  }
  for (Half& h : halves) {
    const int peer = peer_of(h);
    auto got = state.bootstrap->recv(peer, edge_id(number_, h.sender, h.receiver));
    if (!got) return named(std::move(got).error(), peer);
    Handshake theirs{};
    std::memcpy(theirs.data(), got->data(), std::min(got->size(), theirs.size()));
    auto made = h.end->connect(theirs);
    if (!made) return named(std::move(made).error(), peer);
    auto& table = h.sender == me ? out_ : in_;
    {
      const std::lock_guard wires{wires_mutex_};
      for (int c = 0; c < plan_.channels; ++c)
        table[std::size_t(c) * ranks + peer] = made->wires[c];
    }
    if (h.receiver == me || made->wires[0].proxied) {
      const Index bytes = plan_.slot_bytes * plan_.slot_count * plan_.channels;
      bytes_ += bytes;
      state.used += bytes;
    }
    proxied_ = proxied_ || made->wires[0].proxied;
    log_info(LogPart::init, "{}: {} to {} by {}", name_, h.sender, h.receiver, made->transport);
    owners_.push_back(*std::move(made));
    if (h.sender != me) continue;
    auto sent = state.bootstrap->send(peer, edge_id(number_, h.sender, h.receiver), "", 1);
    if (!sent) return named(std::move(sent).error(), peer);
  }
  // A receiver stays until its senders have connected, however soon its owner lets go.
  for (const Half& h : halves) {
    if (h.receiver != me) continue;
    auto met = state.bootstrap->recv(h.sender, edge_id(number_, h.sender, h.receiver));
    if (!met) return named(std::move(met).error(), h.sender);
  }
  return {};
}

Cursor* Links::send_cursors() {
  const auto n = std::size_t(comm_.ranks()) * plan_.channels;
  cursors_.assign(2 * n, {});
  return cursors_.data();
}
Cursor* Links::recv_cursors() {
  return cursors_.data() + std::size_t(comm_.ranks()) * plan_.channels;
}

Result<void> Links::ready() const {
  return comm_.state()->ready();
}

CallInfo Links::noted(CallInfo info) {
  CommState& state = *comm_.state();
  info.composition = number_;
  info.call = calls_.fetch_add(1, std::memory_order_relaxed);
  if (!state.journal || !state.status.ok()) return info;
  Operation op;
  name_.copy(op.what, sizeof op.what - 1);
  std::memcpy(op.type, info.type, sizeof op.type);
  std::memcpy(op.redop, info.redop, sizeof op.redop);
  op.count = info.count;
  op.root = info.root;
  op.composition = number_;
  op.call = info.call;
  info.ticket = state.journal->note(op, std::string_view{info.what} == SendRecv::name);
  return info;
}

std::optional<WireSteps> read_steps(const Wire& wire, int device) {
  if (device >= 0 || wire.slots == nullptr) return {};
  const auto read = [](const Word* at) { return at == nullptr ? 0 : HostMemory::load_relaxed(at); };
  WireSteps steps;
  // Not every wire counts what is posted, and the sender's own count lags while it works.
  steps.filled = std::max(read(wire.posted), read(wire.sent));
  steps.drained = std::max(read(wire.drained), read(wire.received));
  return steps;
}

std::vector<WireSteps> Links::steps() const {
  std::vector<WireSteps> all;
  const int ranks = comm_.ranks();
  const std::lock_guard lock{wires_mutex_};
  for (const auto* wires : {&in_, &out_}) {
    for (std::size_t i = 0; i < wires->size(); ++i) {
      auto steps = read_steps((*wires)[i], comm_.device());
      if (!steps) continue;
      steps->peer = int(i) % ranks;
      steps->channel = int(i) / ranks;
      steps->sends = wires == &out_;
      all.push_back(*steps);
    }
  }
  return all;
}

WaitsFor Links::waits() const {
  return WaitsFor::unpack(HostMemory::load_relaxed(&waits_));
}

Result<void> Links::begin(CallInfo info) {
  CommState& state = *comm_.state();
  info_ = info;
  auto begun = begin_checked(info);
  if (!begun && state.journal) state.journal->ended(info.ticket, false);
  return begun;
}

Result<void> Links::begin_checked(const CallInfo& info) {
  CommState& state = *comm_.state();
  CCL_CHECK(state.ready());
  gave_up_ = {};
  HostMemory::store_relaxed(&waits_, 0);
  if (state.journal) state.journal->started(info.ticket);
  if (proxied_) helper_.emplace(state.proxy);
  if (!state.check) return {};
  std::vector<CallInfo> all(comm_.ranks());
  all[comm_.rank()] = info;
  const std::lock_guard lock{state.bootstrap_mutex};
  auto met = state.bootstrap->all_gather(all.data(), Index{sizeof(CallInfo)});
  if (!met) return fail(state.blame(std::move(met).error()));
  for (int r = 0; r < comm_.ranks(); ++r) {
    const CallInfo& other = all[r];
    const auto differs = [&](const char* what, const auto& theirs, const auto& mine) {
      Error error{Errc::mismatch,
                  fmt::format("{} {} of call {} differs: rank {} gave {}, rank {} gave {} (all "
                              "ranks must make the same calls in the same order)",
                              info.what, what, info.call, r, theirs, comm_.rank(), mine)};
      error.peer = r;
      state.status.set(state.blame(error));
      return fail(state.blame(std::move(error)));
    };
    using Text = std::string_view;
    if (Text{other.what} != Text{info.what}) return differs("operation", other.what, info.what);
    if (other.composition != info.composition || other.call != info.call) {
      return differs("number", other.call, info.call);
    }
    if (Text{other.type} != Text{info.type}) return differs("type", other.type, info.type);
    if (Text{other.redop} != Text{info.redop}) return differs("reduction", other.redop, info.redop);
    if (other.count != info.count) return differs("count", other.count, info.count);
    if (other.root != info.root) return differs("root", other.root, info.root);
  }
  return {};
}

Result<void> Links::finish() {
  CommState& state = *comm_.state();
  helper_.reset();
  if (gave_up_.peer != 0) {
    const int peer = int(gave_up_.peer) - 1;
    Error error{Errc::timed_out,
                fmt::format("no progress for {} s in {} call {} ({} elements) at step {} of the "
                            "wire with rank {} on {} (that rank is late or dead); look there, or "
                            "raise CCL_TIMEOUT",
                            state.timeout_s, name_, info_.call, info_.count, gave_up_.step, peer,
                            peer < int(state.peers.size()) ? state.peers[peer].host : "?")};
    error.peer = peer;
    state.fail_all(std::move(error));
  }
  auto well = state.status.result();
  if (state.journal) state.journal->ended(info_.ticket, well.has_value());
  if (!well) {
    Error error = std::move(well).error();
    if (error.what.find(info_.what) == std::string::npos) {
      error.what += fmt::format(" [while in {} call {}]", name_, info_.call);
    }
    return fail(state.blame(std::move(error)));
  }
  return {};
}

Result<void> check_buffer(const Communicator& comm, const char* what, const void* buffer,
                          Index count, Index element_bytes) {
  constexpr Index most = Index{1} << 62;
  const auto bad = [&](std::string text) {
    return fail(comm.state()->blame({Errc::invalid_argument, std::move(text)}));
  };
  if (count < 0 || count > most / std::max<Index>(element_bytes, 1)) {
    return bad(fmt::format("{} count {} of {}-byte elements cannot be (0 to {})", what, count,
                           element_bytes, most / element_bytes));
  }
  if (buffer == nullptr && count > 0) {
    return bad(
        fmt::format("{} is null and should hold {} elements of {} bytes; give a buffer or "
                    "count 0",
                    what, count, element_bytes));
  }
  return {};
}

Result<void> check_root(const Communicator& comm, int root) {
  if (root >= 0 && root < comm.ranks()) return {};
  Error error{Errc::invalid_argument,
              fmt::format("rank {} is not in the communicator (it has ranks 0 to {})", root,
                          comm.ranks() - 1)};
  error.peer = root;
  return fail(comm.state()->blame(std::move(error)));
}

}  // namespace ccl::detail
