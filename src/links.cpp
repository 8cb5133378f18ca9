#include <ccl/collective.hpp>
#include <ccl/links.hpp>
#include <ccl/log.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "comm_state.hpp"
#include "gpu/memory.hpp"
#include "transport/p2p_mapping.hpp"
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
  if (plan.channels >= 1 && plan.channels <= 4096 && power_of_two(plan.slot_count) &&
      plan.slot_count >= 2 && plan.slot_bytes > 0 && plan.channel_bytes >= 0 &&
      plan.slot_bytes % 128 == 0 && plan.slice_steps >= 1 &&
      plan.chunk_steps % plan.slice_steps == 0 && power_of_two(plan.slice_steps) &&
      plan.slot_count >= 2 * plan.slice_steps && plan.chunk_steps >= plan.slice_steps) {
    return {};
  }
  return fail(
      Errc::invalid_argument,
      fmt::format("a plan of {} channels, {} slots of {} bytes, slices of {} and chunks of "
                  "{} steps cannot be (1 to 4096 channels; slots a power of two, at least two "
                  "slices; slot bytes a multiple of 128; chunks whole slices)",
                  plan.channels, plan.slot_count, plan.slot_bytes, plan.slice_steps,
                  plan.chunk_steps));
}

/// What a rank can take part in: how dear its dearest edge is, and the largest slots that it has
/// memory for, by plan; -1: not even for the smallest.
struct Means {
  Index through = 0;
  std::array<Index, 3> slot_bytes{};
};

/// Tells those who will wait whether the ranks of this host have a CPU each.
void look_for_room(const CommState& state) {
  const auto local = std::count_if(state.peers.begin(), state.peers.end(), [&](const PeerInfo& p) {
    return p.host_hash == state.peers[std::size_t(state.rank)].host_hash;
  });
  if (local > ::sysconf(_SC_NPROCESSORS_ONLN)) crowded.store(true, std::memory_order_relaxed);
}
}  // namespace

/// What the wires of a rank on a GPU stand on.
struct Links::OnDevice {
  GpuArena arena;
  GpuBlock tables{};
  std::vector<Connection> connections{};
  bool holds_slots = false;  // of some wires into this rank
};

Result<void> check_ready(const Communicator& comm) {
  return comm.state()->ready();
}

Links::Links(const Communicator& comm, const Connector& connector, std::string name)
    : comm_{comm}, connector_{connector}, name_{std::move(name)} {}

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

bool Links::on_device() const {
  return comm_.state()->gpu != nullptr;
}

Result<std::shared_ptr<Links>> Links::create(const Communicator& comm, const Plans& plans, int fan,
                                             int line_bytes, const Connector& connector,
                                             std::string name) {
  CommState& state = *comm.state();
  CCL_CHECK(state.ready());
  bury_graphs();
  Plans wanted = plans;
  for (Plan& plan : wanted.by_through) {
    if (state.config.channels) {
      plan.channels = *state.config.channels;
    } else if (!state.gpu) {  // there, they are bounds on blocks: see `begin_on_device`
      plan.channels = std::min(plan.channels, state.bounds.most.value_or(plan.channels));
      plan.channels = std::max(plan.channels, state.bounds.least.value_or(plan.channels));
    }
    if (auto good = check_plan(plan); !good) return fail(state.blame(std::move(good).error()));
  }
  auto links = std::shared_ptr<Links>{new Links{comm, connector, std::move(name)}};
  links->number_ = state.compositions.fetch_add(1);
  links->line_bytes_ = line_bytes;
  links->plan_ = wanted.by_through[0];
  const int ranks = comm.ranks();
  if (ranks > 1) {
    if (state.gpu) links->device_ = std::make_shared<OnDevice>(OnDevice{GpuArena{state.gpu}});
    links->fan_ = std::max(1, std::min(fan, ranks - 1));
    CCL_CHECK(links->agree(wanted));
  }
  const Plan& plan = links->plan_;
  links->cursors_.resize(2 * std::size_t(ranks) * plan.channels);
  links->tables_.cursors = links->cursors_.data();
  if (ranks == 1) return links;
  look_for_room(state);

  links->in_.resize(std::size_t(ranks) * plan.channels);
  links->out_.resize(links->in_.size());
  links->order_.resize(ranks);
  std::iota(links->order_.begin(), links->order_.end(), 0);
  links->rings_.assign(plan.channels, RingSeat{comm.rank(), ranks, links->order_.data()});
  links->trees_.resize(plan.channels);
  links->connected_.resize(ranks);
  links->watch_ = {reinterpret_cast<const Word*>(&state.status.word()), &links->gave_up_,
                   Word(state.timeout_s * 1e9), &links->waits_, 0};
  links->tables_ = {links->in_.data(), links->out_.data(), links->rings_.data(),
                    links->trees_.data(), links->cursors_.data()};
  if (state.gpu) {
    Watched& watched = state.gpu->watched();
    links->watch_ = {&watched.stop, &watched.gave_up, Word(state.timeout_s * 1e9), &watched.waits,
                     0};
    if (links->device_->holds_slots) {
      auto done = links->device_->arena.reserve(std::size_t(links->bytes_of(plan)));
      if (!done) return fail(state.blame(std::move(done).error()));
    }
  }
  const std::lock_guard lock{state.links_mutex};
  state.links.push_back(links.get());
  return links;
}

Result<void> Links::agree(const Plans& plans) {
  CommState& state = *comm_.state();
  const int me = comm_.rank();
  std::vector<Means> all(comm_.ranks());
  Means& mine = all[me];
  for (const PeerInfo& peer : state.peers) {
    if (peer.rank == me) continue;
    const Through in = connector_.carrier(peer, state.peers[me]).through;
    const Through out = connector_.carrier(state.peers[me], peer).through;
    mine.through = std::max({mine.through, Index(in), Index(out)});
    if (device_ && in == Through::gpu_memory) device_->holds_slots = true;
  }
  // Slots shrink until this composition takes at most half of the budget, and what is left.
  // All ranks take the smallest that any of them needs.
  const Index left = std::min(state.budget / 2, state.budget - state.used.load());
  for (std::size_t n = 0; n < plans.by_through.size(); ++n) {
    Plan plan = plans.by_through[n];
    while (plan.slot_bytes > smallest_slot && bytes_of(plan) > left) {
      plan.slot_bytes = plan.slot_bytes / 2 / 128 * 128;
    }
    mine.slot_bytes[n] = bytes_of(plan) > left ? -1 : plan.slot_bytes;
  }
  {
    const std::lock_guard lock{state.bootstrap_mutex};
    auto met = state.bootstrap->all_gather(all.data(), Index{sizeof(Means)});
    if (!met) return fail(state.blame(std::move(met).error()));
  }
  std::size_t through = 0;
  for (const Means& of : all) through = std::max(through, std::size_t(of.through));
  plan_ = plans.by_through[through];
  const auto smaller = [through](const Means& a, const Means& b) {
    return a.slot_bytes[through] < b.slot_bytes[through];
  };
  const auto least = std::min_element(all.begin(), all.end(), smaller);
  const Index slot = least->slot_bytes[through];
  if (slot < 0) {
    plan_.slot_bytes = smallest_slot;
    return fail(state.blame(
        {Errc::over_budget,
         fmt::format("{} needs {} bytes for its smallest slots on rank {} (the budget is {}, of "
                     "which {} are used here); raise CCL_MEMORY_BUDGET or drop a composition",
                     name_, bytes_of(plan_), least - all.begin(), state.budget, state.used.load()),
         -1, int(least - all.begin())}));
  }
  if (slot < plan_.slot_bytes) {
    log_info(LogPart::init, "{}: slots of {} bytes instead of {}, to fit the memory budget", name_,
             slot, plan_.slot_bytes);
  }
  plan_.slot_bytes = slot;
  return {};
}

void Links::seats_for(int root, bool double_tree) {
  const auto seat = [&](int of_root, int c) {
    return double_binary_tree(comm_.rank(), comm_.ranks(), of_root, double_tree ? c % 2 : 0);
  };
  if (!on_device()) {
    for (int c = 0; c < plan_.channels; ++c) trees_[c] = seat(root, c);
    return;
  }
  // On a GPU launches of different roots may be under way at once: the trees of all roots.
  if (int(trees_.size()) < plan_.channels * comm_.ranks()) {
    trees_.resize(std::size_t(plan_.channels) * comm_.ranks());
    for (int r = 0; r < comm_.ranks(); ++r) {
      for (int c = 0; c < plan_.channels; ++c) trees_[r * plan_.channels + c] = seat(r, c);
    }
  }
}

Result<void> Links::upload() {
  CommState& state = *comm_.state();
  const auto part = [](const auto& v) { return v.size() * sizeof v[0]; };
  // In the order of their alignment.
  const std::size_t out = part(in_), rings = out + part(out_), trees = rings + part(rings_),
                    cursors = trees + part(trees_), order = (cursors + part(cursors_) + 7) / 8 * 8,
                    bytes = order + part(order_);
  static_assert(alignof(TreeSeat) <= 8 && sizeof(TreeSeat) % 8 == 0 && sizeof(RingSeat) % 8 == 0);
  if (!device_->tables.memory) {
    CCL_TRY(device_->tables, device_->arena.allocate(bytes));
  }
  std::byte* const base = device_->tables.at();
  std::vector<std::byte> image(bytes);
  const auto put = [&](std::size_t at, const auto& v) {
    std::memcpy(image.data() + at, v.data(), part(v));
  };
  auto rings_there = rings_;
  for (RingSeat& ring : rings_there) ring.order = reinterpret_cast<const int*>(base + order);
  put(0, in_);
  put(out, out_);
  put(rings, rings_there);
  put(trees, trees_);
  put(order, order_);
  tables_ = {reinterpret_cast<const Wire*>(base), reinterpret_cast<const Wire*>(base + out),
             reinterpret_cast<const RingSeat*>(base + rings),
             reinterpret_cast<const TreeSeat*>(base + trees),
             reinterpret_cast<Cursor*>(base + cursors)};
  return state.gpu->copy(base, image.data(), bytes);
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
  if (device_) context.arena = &device_->arena;
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
    state.journal->ended(info_.ticket, false);
    if (error.peer < 0) error.peer = peer;  // a rank that was lost is named already
    if (error.transport.empty()) error.transport = connector_.name;
    return fail(state.blame(std::move(error)));
  };
  const auto short_lines = [&](const Half& h, const char* transport, int bytes) {
    Error error{Errc::not_supported,
                fmt::format("{} needs lines of {} bytes that land whole (from rank {} to rank {} "
                            "{} carries {}); use Simple or LL",
                            name_, line_bytes_, h.sender, h.receiver, transport, bytes)};
    error.transport = transport;
    return error;
  };
  // Both ends refuse before either has anything that the other might wait for.
  for (const Half& h : halves) {
    const Carrier by = connector_.carrier(state.peers[h.sender], state.peers[h.receiver]);
    if (by.line_bytes < line_bytes_) {
      return named(short_lines(h, by.transport, by.line_bytes), peer_of(h));
    }
  }
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
    if (made->line_bytes < line_bytes_) {
      return named(short_lines(h, made->transport, made->line_bytes), peer);
    }
    owners_.push_back(*std::move(made));
    auto sent = state.bootstrap->send(peer, edge_id(number_, h.sender, h.receiver), "", 1);
    if (!sent) return named(std::move(sent).error(), peer);
  }
  // An end stays until the other has connected, however soon its owner lets go.
  for (const Half& h : halves) {
    const int peer = peer_of(h);
    auto met = state.bootstrap->recv(peer, edge_id(number_, h.sender, h.receiver));
    if (!met) return named(std::move(met).error(), peer);
  }
  if (device_) {
    if (auto done = upload(); !done) return fail(state.blame(std::move(done).error()));
  }
  return {};
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
  steps.filled = std::max(steps.filled, steps.drained);
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
  watch_.ticket = info.ticket;
  if (state.journal) state.journal->started(info.ticket);
  if (proxied_ && device_) state.proxy.wake();
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

void Links::help() {
  if (proxied_) helper_.emplace(comm_.state()->proxy);
}

Result<void> Links::finish() {
  CommState& state = *comm_.state();
  helper_.reset();
  if (gave_up_.peer != 0) {
    const int peer = int(gave_up_.peer) - 1;
    Error error{
        Errc::timed_out,
        fmt::format("no progress for {} s in {} call {} (it waits for rank {} on {} at step "
                    "{}); look there, or raise CCL_TIMEOUT",
                    state.timeout_s, name_, info_.call, peer,
                    peer < int(state.peers.size()) ? state.peers[peer].host : "?", gave_up_.step)};
    error.peer = peer;
    state.fail_all(state.overdue(std::move(error)));
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

Result<void> Links::map_peers() {
  CommState& state = *comm_.state();
  const int me = comm_.rank(), ranks = comm_.ranks();
  const std::size_t half = std::size_t(plan_.slot_bytes);
  epoch_.count = 128;  // blocks of a launch, at most
  const auto named = [&](Error error, int peer) {
    if (auto well = state.status.result(); !well) error = std::move(well).error();
    if (error.peer < 0) error.peer = peer;
    return fail(state.blame(std::move(error)));
  };
  auto scratch = device_->arena.allocate(2 * half);
  if (!scratch) return fail(state.blame(std::move(scratch).error()));
  auto copies = device_->arena.allocate(std::size_t(epoch_.count) * sizeof(Word));
  if (!copies) return fail(state.blame(std::move(copies).error()));
  device_->tables = *copies;
  epoch_.copies = reinterpret_cast<Word*>(copies->at());

  const std::lock_guard lock{state.bootstrap_mutex};
  TransportContext context;
  context.status = &state.status;
  context.secret = state.bootstrap->secret();
  context.deadline_s = state.init_timeout_s;
  context.arena = &device_->arena;
  std::vector<P2pMapping> mappings(ranks);
  const auto id_of = [&](int a, int b) { return edge_id(number_, std::min(a, b), std::max(a, b)); };
  for (int p = 0; p < ranks; ++p) {
    if (p == me) continue;
    const auto can =
        P2pTransport::can_connect(state.peers[std::min(p, me)], state.peers[std::max(p, me)]);
    if (!can) {
      Error error = can.error();
      error.what += fmt::format("; {} addresses the memory of every peer: use Ring or Tree", name_);
      return named(std::move(error), p);
    }
    Edge edge;
    edge.self = state.peers[me];
    edge.peer = state.peers[p];
    edge.side = me < p ? Side::sender : Side::receiver;
    edge.shape = {1, plan_.slot_count, plan_.slot_bytes};
    edge.id = id_of(me, p);
    auto mapping = P2pMapping::make(context, edge, *scratch, 2 * half);
    if (!mapping) return named(std::move(mapping).error(), p);
    mappings[p] = *std::move(mapping);
    const Handshake mine = mappings[p].handshake();
    auto sent = state.bootstrap->send(p, edge.id, mine.data(), Index(mine.size()));
    if (!sent) return named(std::move(sent).error(), p);
  }
  for (int p = 0; p < ranks; ++p) {
    if (p == me) continue;
    auto got = state.bootstrap->recv(p, id_of(me, p));
    if (!got) return named(std::move(got).error(), p);
    Handshake theirs{};
    std::memcpy(theirs.data(), got->data(), std::min(got->size(), theirs.size()));
    if (auto done = mappings[p].connect(theirs); !done) return named(std::move(done).error(), p);
    peers_.scratch[p] = reinterpret_cast<Packet*>(mappings[p].theirs().at());
    using Blocks = std::pair<GpuBlock, GpuBlock>;
    Connection connection;
    connection.owner = std::make_shared<Blocks>(mappings[p].mine(), mappings[p].theirs());
    connection.transport = P2pTransport::name;
    owners_.push_back(std::move(connection));
  }
  peers_.scratch[me] = reinterpret_cast<Packet*>(scratch->at());
  peers_.half_packets = Index(half / sizeof(Packet));
  peers_.rank = me;
  peers_.ranks = ranks;
  bytes_ += Index(2 * half);
  state.used += Index(2 * half);
  log_info(LogPart::init, "{}: scratch of {} bytes at every rank, by p2p", name_, 2 * half);
  // Nobody launches, or drops its offers, before all have come so far.
  auto met = state.bootstrap->barrier();
  if (!met) return fail(state.blame(std::move(met).error()));
  return {};
}

Error Links::no_peer_view() const {
  const CommState& state = *comm_.state();
  if (!state.gpu) {
    return state.blame({Errc::not_supported,
                        fmt::format("{} addresses its peers' memory, which CPU ranks do not offer; "
                                    "use Doubling, Ring or Tree",
                                    name_)});
  }
  return state.blame(
      {Errc::not_supported,
       fmt::format(
           "{} has no kernels for {} ranks; list that number in its RankCounts, or use Ring "
           "or Tree",
           name_, state.ranks)});
}

Result<DeviceTarget> Links::begin_on_device(CallInfo info, Stream stream) {
  CommState& state = *comm_.state();
  if (stream.host() != nullptr) {
    return fail(state.blame({Errc::invalid_argument,
                             fmt::format("{} was given a HostStream (the communicator is on CUDA "
                                         "device {}); give it a cudaStream_t",
                                         name_, state.config.device)}));
  }
  CCL_CHECK(begin(noted(info)));
  if (auto done = state.order->before(stream.cuda(), shared_from_this()); !done) {
    return fail(state.blame(std::move(done).error()));
  }
  // Several ranks on one GPU share its multiprocessors; one that only waits would take the place of
  // the one that it waits for.
  const int most = std::min(state.gpu->multiprocessors() / state.ranks_on_gpu,
                            state.bounds.most.value_or(std::numeric_limits<int>::max()));
  return DeviceTarget{state.config.device, stream.cuda(), std::max(1, std::min(most, 128)),
                      state.ranks_on_gpu == 1, plan_.channel_bytes};
}

Result<void> Links::finish_on_device(int code, Stream stream) {
  CommState& state = *comm_.state();
  if (code != 0) {
    state.order->give_up();
    return fail(cuda_failed(code));
  }
  if (auto done = state.order->after(stream.cuda()); !done) {
    return fail(state.blame(std::move(done).error()));
  }
  return {};
}

Result<void> Links::copy(void* to, const void* from, Index bytes, Stream stream) {
  CommState& state = *comm_.state();
  CCL_CHECK(state.ready());
  if (to == from || bytes == 0) return {};
  const CudaDriver& cuda = state.gpu->driver();
  const auto done = cuda_check(
      cuda.memcpy_async(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from),
                        std::size_t(bytes), stream.cuda()),
      fmt::format("copy {} bytes", bytes));
  if (!done) return fail(state.blame(done.error()));
  return {};
}

Error Links::no_device_code() const {
  const CommState& state = *comm_.state();
  return state.blame({Errc::no_device_code,
                      fmt::format("{} has no kernel for this element type and reduction in this "
                                  "program (the communicator is on CUDA device {}); include "
                                  "<ccl/ccl.cuh> where it is called, and compile that with nvcc",
                                  name_, state.config.device)});
}

Error Links::not_on_device() const {
  return comm_.state()->blame(
      {Errc::invalid_argument,
       fmt::format("{} was given a CUDA stream (the communicator is on CPUs); give it a HostStream "
                   "or none, or set Config::device",
                   name_)});
}

Error Links::too_many_messages(int messages) const {
  return comm_.state()->blame(
      {Errc::not_supported,
       fmt::format("{} of {} messages with {} ranks does not fit into a launch (at most {} "
                   "messages, {} ranks); split it",
                   name_, messages, comm_.ranks(), ExchangeWork::most_messages,
                   ExchangeWork::most_ranks)});
}

Error Links::cuda_failed(int code) const {
  return comm_.state()->blame(cuda_error(CUresult(code), fmt::format("launch {}", name_)));
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
