#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/field_check.hpp"
#include "comm/edges/edge_handshake.hpp"
#include "comm/edges/gpu_lender.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "gpu/devices.hpp"
#include "topo/graph/p2p_path.hpp"
#include "transport/p2p/mapping.hpp"
#include "transport/p2p/path_table.hpp"

namespace ccl::detail {
namespace {

constexpr double longest_copy_s = 2;
constexpr int max_stuck = 3;           // copies that do not complete; no further copy is tried
constexpr int trial_number = 1 << 22;  // used as the number of a composition

/// Results of all trials of this process. They remain valid for later communicators.
class KnownPaths {
 public:
  static KnownPaths& instance() {
    static KnownPaths paths;
    return paths;
  }
  void put(const PeerInfo& from, const PeerInfo& to, PathFault fault) {
    const std::lock_guard lock{mutex_};
    known_[key(from, to)] = fault;
  }
  const PathFault* find(const PeerInfo& from, const PeerInfo& to) {
    const std::lock_guard lock{mutex_};
    const auto found = known_.find(key(from, to));
    return found == known_.end() ? nullptr : &found->second;
  }

 private:
  // Memory within a process is mapped by another method than memory of another process.
  using Key = std::tuple<std::int64_t, std::uint64_t, std::int64_t, bool>;
  static Key key(const PeerInfo& from, const PeerInfo& to) {
    return {from.bus_id, to.host_hash, to.bus_id, from.pid_hash == to.pid_hash};
  }
  std::mutex mutex_;
  std::map<Key, PathFault> known_;
};

/// Identifies ranks that may address each other: an NVLink domain of several hosts, or one host.
std::uint64_t domain_of(const PeerInfo& peer) {
  return peer.fabric != 0 ? peer.fabric : peer.host_hash;
}

/// Trials of one rank with the other ranks of its host or NVLink domain.
class P2pProbe {
 public:
  explicit P2pProbe(CommState& state)
      : state_{state}, me_{state.identity.peers()[std::size_t(state.identity.rank())]}, table_{0} {
    for (const PeerInfo& peer : state.identity.peers()) {
      if (domain_of(peer) == domain_of(me_)) locals_.push_back(peer.rank);
    }
    place_ = place_of(me_.rank);
    table_ = PathTable{int(locals_.size())};
  }

  Result<void> run() {
    const auto begin = std::chrono::steady_clock::now();
    CCL_CHECK(exchange(say_all()));
    std::vector<int> peers;  // places; each rank begins with the next place
    for (int d = 1; d < table_.places(); ++d) {
      const int p = (place_ + d) % table_.places();
      if (table_.to_try(place_, p)) peers.push_back(p);
    }
    if (untried_) {
      if (!peers.empty()) CCL_CHECK(try_all(peers));
      CCL_CHECK(exchange({}));  // then no rank uses the memory of another one
      for (const int p : peers) {
        KnownPaths::instance().put(me_, peer(p), table_.fault(place_, p));
      }
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      log_info(LogPart::p2p, "tried the paths to {} GPUs in {:.1f} ms", peers.size(), took.count());
    }
    decide_paths();
    return lends() ? GpuLender::start(state_) : Result<void>{};
  }

 private:
  int place_of(int rank) const {
    return int(std::find(locals_.begin(), locals_.end(), rank) - locals_.begin());
  }
  const PeerInfo& peer(int place) const {
    return state_.identity.peers()[std::size_t(locals_[std::size_t(place)])];
  }

  /// True if a rank on this GPU lends: whoever asks knows the GPU, not which of its ranks was
  /// meant.
  bool lends() const {
    for (int p = 0; p < table_.places(); ++p) {
      const bool here = peer(p).bus_id == me_.bus_id && peer(p).host_hash == me_.host_hash;
      if (here && table_.lends(p)) return true;
    }
    return false;
  }

  /// Fills the row of this rank with all that needs no trial.
  Result<void> say_all() {
    CCL_TRY(const bool check, setting_flag("P2P_CHECK"));
    CCL_TRY(const bool no_relays, setting_flag("NVB_DISABLE"));
    CCL_TRY(const bool handles, setting_flag("CUMEM_ENABLE"));
    CCL_TRY(const auto level, p2p_level());
    CCL_TRY(const CudaDriver* const cuda, cuda_driver());
    const bool may_relay =
        handles && !no_relays && level.value_or(topo::PathType::nvb) >= topo::PathType::nvb;
    for (int p = 0; p < table_.places(); ++p) {
      if (p == place_) continue;
      const PeerInfo& to = peer(p);
      PathReport& said = table_.at(place_, p);
      said.nvlink = gpu_path(me_, to) <= topo::PathType::nvl;
      CUdevice device = -1;
      const bool seen =
          cuda->device_get_by_pci_bus_id(&device, bus_id_text(to.bus_id).c_str()) == CUDA_SUCCESS;
      said.relays = may_relay && to.host_hash == me_.host_hash &&
                    (seen || to.memory_domain == me_.memory_domain);
      said.on_loan = said.relays && !seen;
      CCL_TRY(const bool excluded, p2p_excludes(me_, to));
      if (excluded) {
        said.fault = PathFault::excluded;
      } else if (!P2pTransport::can_connect(p < place_ ? to : me_, p < place_ ? me_ : to)) {
        said.fault = PathFault::refused;
      } else if (check && !same_gpu(to, me_)) {
        const PathFault* const known = KnownPaths::instance().find(me_, to);
        if (known != nullptr) {
          said.fault = *known;
        } else {
          said.untried = true;
        }
      }
    }
    return {};
  }

  /// Gathers the rows of all ranks. A rank that has failed marks its own place.
  Result<void> exchange(const Result<void>& mine) {
    std::map<cuda::std::uint64_t, std::size_t> joined;
    std::size_t most = 0;
    for (const PeerInfo& p : state_.identity.peers()) most = std::max(most, ++joined[domain_of(p)]);
    std::vector<std::uint8_t> all(most * std::size_t(state_.identity.ranks()));
    const auto row = [&](int rank) { return all.data() + std::size_t(rank) * most; };
    constexpr std::uint8_t lane_failure = 0xff;
    for (int p = 0; p < table_.places(); ++p) {
      row(me_.rank)[p] = p == place_ ? (mine ? 0 : lane_failure) : table_.at(place_, p).byte();
    }
    CCL_CHECK(state_.rendezvous.bootstrap()->all_gather(all.data(), Index(most)));
    joined.clear();
    bool well = true;
    untried_ = false;
    for (const PeerInfo& p : state_.identity.peers()) {
      const std::size_t place = joined[domain_of(p)]++;
      const std::uint8_t* const bytes = row(p.rank);
      well = well && bytes[place] != lane_failure;
      for (std::size_t q = 0; q < most; ++q) {
        if (q == place) continue;
        const PathReport said = PathReport::of(bytes[q]);
        if (said.fault > PathFault::slow) {
          return state_.rendezvous.break_off(
              p.rank, fmt::format("fault of a path is {}, not from 0 to {}", int(said.fault),
                                  int(PathFault::slow)));
        }
        untried_ = untried_ || said.untried;
        // All rows have the length of the largest domain.
        const bool here = domain_of(p) == domain_of(me_) && int(q) < table_.places();
        if (here) table_.at(int(place), int(q)) = said;
      }
    }
    if (well) return {};
    return all_agree(state_, "asking which GPUs reach each other", mine);
  }

  struct Trial {
    int place = -1;
    P2pMapping mapping;
    PathObservation seen;
    bool offered = false;
  };
  /// Message of a trial: first the offer, then the result of writing.
  struct Note {
    int well = 0;  // 1: true
    Handshake handshake{};
  };
  static std::uint64_t tag(int from, int to) { return edge_id(trial_number, from, to); }
  Result<void> tell(const Trial& trial, const Note& note) {
    const int to = peer(trial.place).rank;
    return state_.rendezvous.bootstrap()->send(to, tag(me_.rank, to), &note, sizeof note);
  }
  Result<Note> read_fields(const Trial& trial) {
    const int from = peer(trial.place).rank;
    CCL_TRY(const auto got, state_.rendezvous.bootstrap()->recv(from, tag(from, me_.rank)));
    Note note;
    FieldCheck check;
    check.in_range("length of a trial's note", got.size(), sizeof note, sizeof note);
    if (check.good()) {
      std::memcpy(&note, got.data(), sizeof note);
      check.flag("result of a trial", note.well);
    }
    if (!check.good()) return fail(state_.rendezvous.break_off(from, check.why()).error());
    return note;
  }

  /// Offset of the block that `place` writes. Before these are a block with the words to write and
  /// a block for the words that are read back.
  std::size_t slot_of(int place) const { return std::size_t(2 + place) * path_trial_bytes; }

  Result<void> prepare() {
    CCL_TRY(copies_, TrialCopies::make(state_.device.gpu, longest_copy_s));
    CCL_TRY(block_, arena_.allocate(slot_of(table_.places())));
    for (Word i = 0; i < path_trial_bytes / sizeof(Word); ++i) {
      copies_->staging()[i] = trial_word(Word(place_), i);
    }
    CCL_TRY(const double us, copies_->copy(block_.at(), copies_->staging(), path_trial_bytes));
    (void)us;
    return {};
  }
  /// Replaces the stream after a copy that did not complete. The memory of that copy is not freed.
  Result<void> refresh() {
    if (copies_ && copies_->stuck()) {
      leave(std::shared_ptr<TrialCopies>{std::move(copies_)});
      leave(block_.memory);
      for (const Trial& trial : trials_) leave(trial.mapping.theirs().memory);
      if (++stuck_ < max_stuck) {
        CCL_TRY(copies_, TrialCopies::make(state_.device.gpu, longest_copy_s));
      }
    }
    if (copies_) return {};
    return fail(Errc::timed_out, fmt::format("{} copies before it did not end", max_stuck));
  }

  Result<void> try_all(const std::vector<int>& peers) {
    const Result<void> ready = prepare();
    const TransportContext context = transport_context(state_, &arena_);
    for (const int p : peers) trials_.push_back({p, {}, {}});
    for (Trial& trial : trials_) {
      Note note;
      const auto offer = [&]() -> Result<void> {
        CCL_CHECK(ready);
        const PeerInfo& to = peer(trial.place);
        Edge edge;
        edge.self = me_;
        edge.peer = to;
        edge.side = me_.rank < to.rank ? EdgeSide::sender : EdgeSide::receiver;
        edge.shape = {1, 1, Index{path_trial_bytes}};
        edge.id = edge_id(trial_number, std::min(me_.rank, to.rank), std::max(me_.rank, to.rank));
        CCL_TRY(trial.mapping,
                P2pMapping::make(context, edge, block_, slot_of(table_.places()), 0));
        note.handshake = trial.mapping.handshake();
        return {};
      };
      saw(trial, PathFault::not_mapped, offer());
      trial.offered = trial.seen.fault == PathFault::none;
      note.well = int(trial.offered);
      CCL_CHECK(tell(trial, note));
    }
    for (Trial& trial : trials_) {
      CCL_TRY(const Note theirs, read_fields(trial));
      if (!trial.offered) continue;
      saw(trial, PathFault::not_mapped,
          theirs.well != 0 ? trial.mapping.connect(theirs.handshake)
                           : fail(Errc::not_supported, "its other end could not share the memory"));
    }
    for (Trial& trial : trials_) {
      Note note;
      if (trial.seen.fault == PathFault::none) note.well = int(write(trial));
      CCL_CHECK(tell(trial, note));
    }
    for (Trial& trial : trials_) {
      CCL_TRY(const Note theirs, read_fields(trial));
      if (theirs.well != 0 && trial.seen.fault == PathFault::none) {
        const auto found = [&]() -> Result<void> {
          CCL_CHECK(refresh());
          PathObservation here =
              look_for(*copies_, Word(trial.place), block_.at() + slot_of(trial.place));
          if (here.fault != PathFault::none) trial.seen = std::move(here);
          return {};
        };
        saw(trial, PathFault::failed, found());
      }
      conclude(trial);
    }
    (void)refresh();
    return {};
  }

  void saw(Trial& trial, PathFault fault, const Result<void>& done) {
    if (done || trial.seen.fault != PathFault::none) return;
    trial.seen.fault = fault;
    trial.seen.detail = done.error().what;
  }

  /// Writes the words to the peer. True if the peer should find them in its memory.
  bool write(Trial& trial) {
    saw(trial, PathFault::failed, refresh());
    if (trial.seen.fault != PathFault::none) return false;
    trial.seen =
        try_path(*copies_, gpu_path(me_, peer(trial.place)), Word(place_), block_.at(),
                 trial.mapping.theirs().at() + slot_of(place_), block_.at() + path_trial_bytes);
    return trial.seen.fault == PathFault::none;
  }

  void conclude(Trial& trial) {
    PathReport& said = table_.at(place_, trial.place);
    said.untried = false;
    said.fault = trial.seen.fault;
    const PeerInfo& to = peer(trial.place);
    if (said.fault == PathFault::none) {
      const auto speed = [](double us) { return double(path_trial_bytes) / us / 1e3; };
      log_info(LogPart::p2p,
               "GPU {} writes to GPU {} with {:.1f} GB/s in pieces of {} bytes, reads with {:.1f}",
               bus_id_text(me_.bus_id), bus_id_text(to.bus_id), speed(trial.seen.times.write_us),
               path_trial_bytes, speed(trial.seen.times.read_us));
    } else {
      log_warn(LogPart::p2p,
               "rank {} (GPU {}) and rank {} (GPU {}) do not use P2P: {} ({}); what they send each "
               "other takes the next transport, such as shm (an IOMMU or ACS may be in the way: "
               "ccl_topo lint looks for them); CCL_P2P_CHECK=0 skips this check",
               me_.rank, bus_id_text(me_.bus_id), to.rank, bus_id_text(to.bus_id),
               fault_text(said.fault), trial.seen.detail);
    }
  }

  /// Sets the path between this rank and each other rank of its domain.
  void decide_paths() {
    for (int p = 0; p < table_.places(); ++p) {
      if (p == place_) continue;
      PeerInfo::LinkPreference& way = state_.identity.way_to(locals_[std::size_t(p)]);
      way.fault = int(table_.fault(place_, p));
      const int between = table_.relay(place_, p);
      if (between < 0) continue;
      way.relay = peer(between).rank;
      way.relay_bus_id = peer(between).bus_id;
      way.avoid_p2p = 0;         // holds only without the relay
      if (p < place_) continue;  // the other rank logs it
      log_info(LogPart::p2p, "ranks {} and {} send each other through memory of GPU {}, of rank {}",
               me_.rank, peer(p).rank, bus_id_text(way.relay_bus_id), way.relay);
    }
  }

  CommState& state_;
  const PeerInfo me_;
  std::vector<int> locals_;  // ranks of the domain
  int place_ = 0;            // of this rank among them
  PathTable table_;
  bool untried_ = false;  // true if any rank has an untried path
  int stuck_ = 0;
  std::unique_ptr<TrialCopies> copies_;
  GpuArena arena_{state_.device.gpu};
  GpuBlock block_;
  std::vector<Trial> trials_;
};

}  // namespace

Result<void> prove_paths(CommState& state) {
  if (!state.device.gpu || state.identity.ranks() == 1) return {};
  return P2pProbe{state}.run();
}

}  // namespace ccl::detail
