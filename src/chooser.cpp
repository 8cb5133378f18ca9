#include <ccl/choice.hpp>
#include <ccl/chooser.hpp>
#include <ccl/links.hpp>
#include <ccl/log.hpp>
#include <ccl/settings.hpp>
#include <ccl/transport/any_of.hpp>
#include <ccl/transport/p2p.hpp>
#include <ccl/tuning.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm_state.hpp"
#include "gpu/gpu.hpp"
#include "host_shape.hpp"

namespace ccl {

std::string Choice::text() const {
  std::string all = fmt::format("{}: {:.2f} us {}; {} {} of {} {}, chunks of {} bytes; {}",
                                composition, us, measured ? "measured" : "predicted", channels,
                                channels == 1 ? "channel" : "channels", lanes,
                                lanes == 1 ? "lane" : "lanes", chunk_bytes, why);
  if (!runner_up.empty()) all += fmt::format("; then {} with {:.2f} us", runner_up, runner_up_us);
  return all;
}

namespace detail {
namespace {

constexpr int most_candidates = 64;
constexpr int most_blocks = 128;  // of a launch: see `CommState::most_blocks`
constexpr Index largest = Index{1} << 34;

/// What the ranks compare before they choose.
struct Ballot {
  std::uint64_t usable = 0;
  std::uint64_t table = 0;  // hash of the measurements that count here
  std::int32_t path = 0;
  std::int32_t inner_path = 0;  // inside its host
  std::int32_t blocks = 0;
};

std::uint64_t hash_of(std::string_view text, std::uint64_t hash = 1469598103934665603ull) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

/// What one rank's edges are to one transport.
struct Edges {
  const Connector* by = nullptr;
  Path path = Path::shm;
  Path inner_path = Path::shm;  // inside the host
  int line_bytes = 128;         // that land at once on all of them
  std::string refusal;          // of an edge that it does not connect
};

Path path_of(bool gpu, const Carrier& by) {
  switch (by.through) {
    case Through::gpu_memory:
      return !gpu ? Path::shm : by.line_bytes >= 128 ? Path::nvlink : Path::pcie;
    case Through::host_memory:
      return gpu ? Path::gpu_host : Path::shm;
    case Through::network:
      break;
  }
  return gpu ? Path::gpu_net : Path::net;
}

Edges look_at(const CommState& state, const Connector& by) {
  const Path best = state.gpu ? Path::nvlink : Path::shm;
  Edges edges{&by, best, best, 128, {}};
  const PeerInfo& me = state.peers[std::size_t(state.rank)];
  for (const PeerInfo& peer : state.peers) {
    if (peer.rank == me.rank) continue;
    for (const auto& [from, to] : {std::pair{me, peer}, std::pair{peer, me}}) {
      if (auto can = by.can_connect(from, to); !can && edges.refusal.empty()) {
        edges.refusal = can.error().what;
      }
      const Carrier carrier = by.carrier(from, to);
      const Path path = path_of(state.gpu != nullptr, carrier);
      edges.path = std::max(edges.path, path);
      if (peer.host_hash == me.host_hash) edges.inner_path = std::max(edges.inner_path, path);
      edges.line_bytes = std::min(edges.line_bytes, carrier.line_bytes);
    }
  }
  return edges;
}

/// Why this rank cannot address its peers' memory, or that of those on its host; empty if it can.
std::string no_peers(const CommState& state, bool of_host = false) {
  if (!state.gpu) return "CPU ranks do not address each other's memory";
  if (auto may = may_choose(P2pTransport::name); !may) return may.error().what;
  const PeerInfo& me = state.peers[std::size_t(state.rank)];
  for (const PeerInfo& peer : state.peers) {
    if (peer.rank == me.rank || (of_host && peer.host_hash != me.host_hash)) continue;
    const auto can =
        P2pTransport::can_address(me.rank < peer.rank ? me : peer, me.rank < peer.rank ? peer : me);
    if (!can) return can.error().what;
  }
  return {};
}

/// Why this communicator has no levels for a candidate; empty if it has.
std::string no_levels(const CommState& state, const CandidateFacts& one, const HostShape& shape) {
  if (shape.hosts == 1) return "all ranks are on one host";
  if (shape.hosts == state.ranks) return "each rank is alone on its host";
  if (one.by_rail && !shape.even) return "hosts have different numbers of ranks";
  if (one.by_rank && !shape.regular) return "ranks are not numbered host by host";
  const int locals = state.ranks / shape.hosts;  // of one host, where hosts are even
  for (int s = 0; s < one.step_count; ++s) {
    const LevelStep& step = one.steps[std::size_t(s)];
    const int ranks = step.outer ? shape.hosts : shape.even ? locals : 0;
    if (step.takes_ranks != nullptr && !step.takes_ranks(ranks)) {
      return fmt::format("one of its levels is not for {} ranks", ranks);
    }
    if (step.mover != Mover::peers) continue;
    if (step.outer) return "hosts do not address each other's memory";
    if (auto why = no_peers(state, true); !why.empty()) return why;
  }
  return {};
}

/// A time between measured ones: straight in both logarithms, beyond them in proportion to the
/// size; never less than the smallest size took.
double between(const std::vector<double>& bytes, const std::vector<double>& us, double at) {
  if (at <= bytes.front()) return us.front();
  if (bytes.size() == 1) return us.front() * std::max(1.0, at / bytes.front());
  if (at >= bytes.back()) return us.back() * at / bytes.back();
  const auto above = std::upper_bound(bytes.begin(), bytes.end(), at) - bytes.begin();
  const std::size_t b = std::size_t(above), a = b - 1;
  const double part = std::log(at / bytes[a]) / std::log(bytes[b] / bytes[a]);
  return us[a] * std::pow(us[b] / us[a], part);
}

}  // namespace

Result<Chooser> Chooser::create(const Communicator& comm, const Question& question) {
  CommState& state = *comm.state();
  CCL_CHECK(state.ready());
  Chooser made;
  made.facts_.assign(question.candidates.begin(), question.candidates.end());
  // Where nothing else is in the list, it says itself what it wants.
  const auto wants_window = [](const CandidateFacts& one) { return one.in_windows; };
  if (std::all_of(made.facts_.begin(), made.facts_.end(), wants_window)) {
    for (CandidateFacts& one : made.facts_) one.in_windows = false;
  }
  if (made.facts_.size() > most_candidates) {
    return fail(state.blame(
        {Errc::not_supported, fmt::format("{} has {} candidates (at most {} can be chosen from)",
                                          question.op, made.facts_.size(), most_candidates)}));
  }
  made.op_ = question.op;
  made.rank_ = state.rank;
  made.ranks_ = state.ranks;
  made.gpu_ = state.gpu != nullptr;
  made.any_size_ = question.by_message && state.check;
  made.reduces_ = question.reduces;
  made.out_.resize(made.facts_.size());
  made.curves_.resize(made.facts_.size());

  // What this rank's edges leave.
  std::vector<Edges> seen;
  const auto edges_of = [&](const Connector* by) -> const Edges& {
    for (const Edges& edges : seen) {
      if (edges.by == by) return edges;
    }
    return seen.emplace_back(look_at(state, *by));
  };
  const HostShape shape = host_shape(state);
  made.hosts_ = shape.hosts;
  made.locals_ = shape.even ? state.ranks / shape.hosts : shape.most;
  std::optional<std::string> peers_refused;
  const auto no_relays = setting_flag("PXN_DISABLE");
  if (!no_relays) return fail(state.blame(no_relays.error()));
  Ballot mine;
  mine.path = mine.inner_path = made.gpu_ ? int(Path::nvlink) : int(Path::shm);
  for (std::size_t c = 0; c < made.facts_.size(); ++c) {
    const CandidateFacts& one = made.facts_[c];
    std::string& out = made.out_[c];
    if (auto may = may_compose(question.op, one.algo, one.proto); !may) {
      if (may.error().code != Errc::bad_setting) return fail(state.blame(may.error()));
      out = may.error().what;
      made.by_setting_ = true;
    } else if (one.relays && *no_relays) {
      out = "CCL_PXN_DISABLE is 1";
      made.by_setting_ = true;
    } else if (!(made.gpu_ ? one.on_gpus : one.on_cpus)) {
      out = made.gpu_ ? "it is for CPUs" : "it is for GPUs";
    } else if (question.deterministic && question.reduces && one.order == SumOrder::varies) {
      out = "its order of reduction varies with the size";
    } else if (state.ranks > 1 && one.takes_ranks != nullptr && !one.takes_ranks(state.ranks)) {
      out = fmt::format("it is not for {} ranks", state.ranks);
    } else if (state.ranks > 1) {
      const Edges& edges = edges_of(one.connector);
      mine.path = std::max(mine.path, int(edges.path));
      mine.inner_path = std::max(mine.inner_path, int(edges.inner_path));
      if (one.step_count > 0) out = no_levels(state, one, shape);
      if (!out.empty()) {
        // its levels say no
      } else if (one.mover != Mover::wires) {
        if (!peers_refused) peers_refused = no_peers(state);
        out = *peers_refused;
      } else if (!edges.refusal.empty()) {
        out = edges.refusal;
      } else if (edges.line_bytes < one.line_bytes) {
        out = fmt::format("it needs lines of {} bytes that land whole, and an edge has {}",
                          one.line_bytes, edges.line_bytes);
      }
    } else if (one.step_count > 0) {
      out = "a rank alone has no levels";
    } else if (one.mover != Mover::wires && !made.gpu_) {
      out = "CPU ranks do not address each other's memory";
    }
    if (out.empty()) mine.usable |= std::uint64_t{1} << c;
  }
  mine.blocks = made.gpu_ ? state.most_blocks() : most_blocks;

  // And what all ranks' do.
  std::vector<Ballot> all(std::size_t(state.ranks), mine);
  const auto exchange = [&]() -> Result<void> {
    if (state.ranks == 1) return {};
    const std::lock_guard lock{state.bootstrap_mutex};
    auto met = state.bootstrap->all_gather(all.data(), Index{sizeof(Ballot)});
    if (!met) return fail(state.blame(std::move(met).error()));
    return {};
  };
  // A rank without a readable table must not leave the others waiting.
  TuningTable table;
  auto read = [&]() -> Result<TuningTable> {
    std::string file = state.config.tune_file;
    if (file.empty()) {
      CCL_TRY(file, setting_text("TUNE_FILE"));
    }
    if (file.empty()) return TuningTable{};
    return TuningTable::read(file);
  }();
  if (read) {
    table = *std::move(read);
    mine.table = table.rows.empty() ? 0 : hash_of(table.json());
  } else {
    mine.table = ~std::uint64_t{0};
  }
  all[std::size_t(state.rank)] = mine;
  CCL_CHECK(exchange());
  if (!read) return fail(state.blame(std::move(read).error()));
  for (int r = 0; r < state.ranks; ++r) {
    if (all[std::size_t(r)].table == mine.table) continue;
    Error error{Errc::mismatch,
                fmt::format("rank {} and rank {} go by different tables of measurements (see "
                            "CCL_TUNE_FILE and Config::tune_file); give all ranks the same",
                            state.rank, r)};
    error.peer = r;
    return fail(state.blame(std::move(error)));
  }
  for (int r = 0; r < state.ranks; ++r) {
    const Ballot& other = all[std::size_t(r)];
    for (std::size_t c = 0; c < made.facts_.size(); ++c) {
      if (made.out_[c].empty() && (other.usable >> c & 1) == 0) {
        made.out_[c] = fmt::format("rank {} cannot run it", r);
      }
    }
    mine.usable &= other.usable;
    mine.path = std::max(mine.path, other.path);
    mine.inner_path = std::max(mine.inner_path, other.inner_path);
    mine.blocks = std::min(mine.blocks, other.blocks);
  }
  made.usable_ = mine.usable;
  made.path_ = Path(mine.path);
  made.inner_path_ = Path(mine.inner_path);
  made.blocks_ = mine.blocks;

  // One order for all sizes: that of the first candidate that is left.
  if (question.deterministic && question.reduces) {
    std::optional<SumOrder> order;
    for (std::size_t c = 0; c < made.facts_.size(); ++c) {
      if (!made.usable(int(c))) continue;
      if (!order) order = made.facts_[c].order;
      if (made.facts_[c].order == *order) continue;
      made.usable_ &= ~(std::uint64_t{1} << c);
      made.out_[c] = "it reduces in another order than those before it";
    }
  }

  TuningCase& where = made.where_;
  where = {
      made.op_, state.ranks, 1, std::string{name(made.path_)}, 0, state.bounds.most.value_or(0)};
  for (const PeerInfo& peer : state.peers) {
    where.compute_capability = std::max(where.compute_capability, peer.compute_capability);
  }
  where.hosts = made.hosts_;
  for (const TuningRow* row : table.of(where)) {
    for (const auto& [composition, us] : row->us) {
      for (std::size_t c = 0; c < made.facts_.size(); ++c) {
        if (made.facts_[c].name() != composition) continue;
        made.curves_[c].bytes.push_back(double(std::max<Index>(row->bytes, 1)));
        made.curves_[c].us.push_back(us);
      }
    }
  }
  for (const CandidateFacts& one : made.facts_) {
    made.rates_.push_back(rates(made.path_, one.mover, one.packing));
    made.near_.push_back(rates(made.inner_path_, one.mover, one.packing));
    made.far_.push_back(one.far_part == nullptr ? 1 : one.far_part(state.ranks, made.hosts_));
    Effort effort = one.effort == nullptr ? Effort{1, 1} : one.effort(state.ranks);
    if (one.far_volume != nullptr && made.hosts_ > 1) {
      effort.volume = one.far_volume(state.ranks, made.hosts_);
    }
    made.efforts_.push_back(effort);
  }
  made.settle();
  if (made.kept_.empty()) return fail(state.blame(made.nothing_left()));
  return made;
}

bool Chooser::covers(int candidate, double bytes) const {
  const Curve& curve = curves_[std::size_t(candidate)];
  return !curve.bytes.empty() && bytes <= 4 * curve.bytes.back();
}

double Chooser::predict(int candidate, Index bytes) const {
  const auto c = std::size_t(candidate);
  const double at = double(std::max<Index>(bytes, 1));
  if (covers(candidate, at)) return between(curves_[c].bytes, curves_[c].us, at);
  if (facts_[c].step_count > 0) return predict_levels(facts_[c], at);
  return predict_us(rates_[c], near_[c], far_[c], efforts_[c], at, blocks_);
}

double Chooser::predict_levels(const CandidateFacts& one, double bytes) const {
  double us = 0;
  for (int s = 0; s < one.step_count; ++s) {
    const LevelStep& step = one.steps[std::size_t(s)];
    const int ranks = step.outer ? hosts_ : locals_;
    if (ranks < 2) continue;
    // What is relayed passes through scratch memory, as much at a time as it holds.
    const double pieces =
        one.relays ? std::max(1.0, std::ceil(bytes / double(level_scratch_bytes(gpu_)))) : 1;
    const double calls = pieces * (step.once_a_host ? hosts_ : 1);
    const Rates by = rates(step.outer ? path_ : inner_path_, step.mover, step.packing);
    // GPUs have NICs of their own; the rails of CPU ranks share their host's.
    const bool rails = step.shared && path_ != Path::net;
    const double each = bytes / calls / (rails ? locals_ : 1);
    Effort effort = step.effort(ranks);
    // As that of the candidates that send it straight.
    if (one.relays && step.outer && gpu_) effort.volume = 2.0 * (hosts_ - 1) / hosts_;
    us += calls * predict_us(by, effort, each, blocks_);
    if (!step.outer) us += calls * level_us(inner_path_);
  }
  return us;
}

bool Chooser::meets(int candidate, Demands demands) const {
  const CandidateFacts& one = facts_[std::size_t(candidate)];
  return (!demands.any_reduction || one.takes_all) && (!demands.not_commutative || !one.reorders) &&
         (!one.in_windows || demands.in_window) && (!demands.in_group || one.step_count == 0);
}

int Chooser::best(std::uint64_t among, double bytes, Demands demands) const {
  int found = -1;
  double least = 0;
  bool measured = false;
  for (int c = 0; c < int(facts_.size()); ++c) {
    if ((among >> c & 1) == 0 || !meets(c, demands)) continue;
    // The model knows nothing of what the measurements know: where there are some, only those
    // count.
    const bool covered = covers(c, bytes);
    if (measured && !covered) continue;
    const double us = predict(c, Index(bytes));
    if (found >= 0 && covered == measured && us >= least) continue;
    found = c;
    least = us;
    measured = covered;
  }
  return found;
}

int Chooser::steadiest(Demands demands) const {
  int found = -1;
  double least = std::numeric_limits<double>::max();
  for (const bool any : {false, true}) {  // at last also those that were not measured everywhere
    for (int c = 0; c < int(facts_.size()); ++c) {
      if (!usable(c) || !meets(c, demands)) continue;
      double worst = 1;
      bool counts = true;
      for (Index bytes = 64; bytes <= largest; bytes *= 4) {
        const int other = best(usable_, double(bytes), demands);
        worst = std::max(worst, predict(c, bytes) / predict(other, bytes));
        counts = counts && (covers(c, double(bytes)) || !covers(other, double(bytes)));
      }
      if ((!any && !counts) || worst >= least) continue;
      found = c;
      least = worst;
    }
    if (found >= 0) break;
  }
  return found;
}

void Chooser::settle() {
  std::uint64_t keep = 0;
  for (int d = 0; d < 4; ++d) {
    const Demands demands{(d & 1) != 0, (d & 2) != 0};
    if (d != 0 && !reduces_) continue;
    const auto take = [&](int c) {
      if (c >= 0) keep |= std::uint64_t{1} << c;
      return c;
    };
    if (any_size_) {
      steady_[d] = take(steadiest(demands));
      continue;
    }
    Demands in_window = demands;
    in_window.in_window = true;
    for (double bytes = 1; bytes <= double(largest); bytes *= 1.25) {
      take(best(usable_, bytes, demands));
      take(best(usable_, bytes, in_window));
    }
    Demands in_group = demands;
    in_group.in_group = true;
    if (best(keep, 1, in_group) < 0) take(steadiest(in_group));
  }
  kept_.clear();
  for (int c = 0; c < int(facts_.size()); ++c) {
    if ((keep >> c & 1) != 0) kept_.push_back(c);
  }
}

Result<void> Chooser::drop(int candidate, const Error& why) {
  usable_ &= ~(std::uint64_t{1} << candidate);
  out_[std::size_t(candidate)] = why.what;
  settle();
  if (!kept_.empty()) return {};
  return fail(why);
}

int Chooser::pick(Index bytes, Demands demands) const {
  if (any_size_) return steady_[int(demands.any_reduction) + 2 * int(demands.not_commutative)];
  std::uint64_t kept = 0;
  for (const int c : kept_) kept |= std::uint64_t{1} << c;
  if (demands.in_group) {
    if (const int one = best(kept, double(std::max<Index>(bytes, 1)), demands); one >= 0)
      return one;
    demands.in_group = false;
  }
  if (kept_.size() == 1) return meets(kept_[0], demands) ? kept_[0] : -1;
  return best(kept, double(std::max<Index>(bytes, 1)), demands);
}

Choice Chooser::explain(Index bytes, int picked, const Plan& plan) const {
  const auto c = std::size_t(picked);
  const CandidateFacts& one = facts_[c];
  Choice choice;
  choice.composition = one.name();
  choice.plan = plan;
  choice.us = ranks_ == 1 ? 0 : predict(picked, bytes);
  choice.measured = covers(picked, double(std::max<Index>(bytes, 1)));
  choice.lanes = gpu_ ? one.gpu_lanes : 1;
  choice.chunk_bytes = plan.slot_bytes * plan.chunk_steps;
  choice.channels = plan.channels;
  if (one.mover == Mover::engines) choice.channels = 1;
  if (gpu_ && one.mover != Mover::engines) {
    // See `channel_worth` in collective/device_shape.cuh.
    const Index worth =
        std::max(plan.channel_bytes, one.gpu_lanes == 32 ? Index{1024} : Index{32} * one.gpu_lanes);
    const int most = one.mover == Mover::wires ? plan.channels : blocks_ * 512 / one.gpu_lanes;
    choice.channels = int(std::clamp<Index>((bytes + worth - 1) / worth, 1, most));
  }
  Demands as_picked;
  as_picked.in_window = one.in_windows;
  const int next = best(usable_ & ~(std::uint64_t{1} << picked), double(bytes), as_picked);
  if (next >= 0 && !any_size_) {
    choice.runner_up = facts_[std::size_t(next)].name();
    choice.runner_up_us = predict(next, bytes);
  }
  if (ranks_ == 1) {
    choice.why = "a rank alone only copies";
  } else if (any_size_) {
    choice.why =
        "sizes may differ between ranks, and calls are checked, so this one, which is never far "
        "behind, does all";
  } else if (choice.measured) {
    choice.why = fmt::format("measured on {} ranks over {}", ranks_, name(path_));
  } else if (one.step_count > 0) {
    choice.why = fmt::format(
        "{} ranks of {} hosts over {}, hosts over {}: {:.1f} us before the "
        "first byte",
        ranks_, hosts_, name(inner_path_), name(path_), predict_levels(one, 0));
  } else {
    const double start = predict_us(rates_[c], near_[c], far_[c], efforts_[c], 0, blocks_);
    choice.why = fmt::format(
        "{} ranks over {}: {:.1f} us for {:.3g} hops, {:.1f} us for {:.3g} "
        "times the message",
        ranks_, name(path_), start, efforts_[c].hops, choice.us - start, efforts_[c].volume);
  }
  std::string gone;
  for (std::size_t o = 0; o < out_.size(); ++o) {
    if (!out_[o].empty()) gone += (gone.empty() ? "" : ", ") + facts_[o].name();
  }
  if (!gone.empty()) choice.why += fmt::format("; not to be had: {}", gone);
  return choice;
}

Error Chooser::none_meets(Demands demands) const {
  std::string names;
  for (const int c : kept_) names += (names.empty() ? "" : ", ") + facts_[std::size_t(c)].name();
  Error error{
      Errc::not_supported,
      fmt::format("{} has no candidate for this reduction ({}; {} are left); name an "
                  "algorithm that {}",
                  op_,
                  demands.not_commutative ? "the functor is not commutative"
                                          : "it scales what the ranks give",
                  names,
                  demands.not_commutative
                      ? "keeps the order of the ranks, as OrderedTree does for all_reduce and "
                        "reduce"
                      : "takes it")};
  error.rank = rank_;
  return error;
}

Error Chooser::nothing_left() const {
  std::string why;
  for (std::size_t c = 0; c < facts_.size(); ++c) {
    why += fmt::format("{}{}: {}", c == 0 ? "" : "; ", facts_[c].name(), out_[c]);
  }
  const bool by_setting = by_setting_ || setting_given("TRANSPORT");
  return {by_setting ? Errc::bad_setting : Errc::not_supported,
          fmt::format("{} has no candidate left ({}); {}", op_, why,
                      by_setting ? "widen CCL_ALGO, CCL_PROTO and CCL_TRANSPORT"
                                 : "list one that this machine can run")};
}

}  // namespace detail
}  // namespace ccl
