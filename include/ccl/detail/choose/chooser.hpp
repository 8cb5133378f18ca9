#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/choose/choice.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/choose/pick_cache.hpp>
#include <ccl/detail/choose/tuning.hpp>
#include <ccl/transport/transport.hpp>
#include <ccl/types/plan.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace ccl::detail {

struct TransportTable;

/// Properties of a candidate as values.
struct CandidateFacts {
  const char* algo;
  const char* proto;
  Mover mover = Mover::wires;
  Packing packing = Packing::simple;
  int line_bytes = 16;  // bytes that must be written at once
  int gpu_lanes = 32;   // lanes of one channel on a GPU
  SumOrder order = SumOrder::varies;
  bool takes_all = true;    // the algorithm runs every reduction
  bool carries_all = true;  // the protocol carries every reduction and all elements
  bool reorders = false;    // changes the order of ranks, so it needs a commutative functor
  // Only for functors that are not commutative, unless no other candidate is left.
  bool for_order = false;
  // Only if no candidate with the same algorithm can write whole lines.
  bool for_torn_lines = false;
  bool by_network = false;  // uses a network that reduces, which is asked for each reduction
  int max_host_ranks = 0;   // with such a network, ranks of a host at most; 0: any number
  // With such a network, hops inside a host of so many ranks, both ways.
  int (*host_hops)(int ranks) = nullptr;
  bool reads_peers = false;                       // reduces by loads from peers, which suit NVLink
  bool in_windows = false;                        // needs receive buffers in windows
  MulticastKind multicast = MulticastKind::none;  // memory that it, or a level of it, needs
  bool by_switches_alone = false;                 // has no kernels that emulate multicast
  bool on_cpus = true, on_gpus = true;
  bool (*takes_ranks)(int ranks) = nullptr;  // null: any number
  CostTerms (*cost_terms)(int ranks) = nullptr;
  const TransportTable* transport_table = nullptr;
  // Inter-node part of its hops; null: all.
  double (*inter_node_fraction)(int ranks, int hosts) = nullptr;
  double (*inter_node_volume)(int ranks,
                              int hosts) = nullptr;  // between hosts; null: as `cost_terms`
  // Blocks of a message over a network; null: all.
  int (*blocks_over_network)(Index bytes, const NetworkFacts& network, const HostFacts& host,
                             int max_blocks) = nullptr;
  std::array<LevelStep, 3> steps{};  // steps of a candidate that runs others on levels, in order
  int step_count = 0;
  bool by_rail = false;  // needs the same number of ranks on every host,
  bool by_rank = false;  // and ranks numbered host by host or around the hosts
  bool relays = false;   // sends messages between hosts through other ranks: see CCL_PXN_DISABLE

  std::string name() const { return std::string{algo} + "/" + proto; }
};

/// Requirements of a call on a candidate.
struct CallConstraints {
  bool any_reduction = false;  // a reduction that not every algorithm runs
  bool not_commutative = false;
  bool any_elements = false;  // elements, or a reduction of them, that not every protocol carries
  bool no_network = false;    // no network reduces it: see `Chooser::network_reduces`
  bool no_switch = false;     // a reduction that switches do not have
  bool in_window = false;     // peers can write to the receive buffer, on all ranks alike
  // The call runs with other calls, which excludes candidates that run on levels.
  bool in_group = false;
  int part = -1;  // the candidate that would share the group's kernel: picked unless another is
                  // faster by more than a launch takes; -1: none
};

/// Chooses between candidates. All ranks choose alike, because all inputs are equal on all ranks:
/// - the operation and the number of bytes,
/// - the peer infos exchanged at creation,
/// - the settings, tables and limits that `create` compares.
class Chooser {
 public:
  struct ChooserRequest {
    const char* op = "";
    std::span<const CandidateFacts> candidates;
    bool deterministic = false;  // only candidates with one order of reduction
    bool reduces = false;
    /// Ranks may call with different sizes: the choice is for one message between two ranks. With
    /// checking on, all ranks must call alike, and one candidate serves all sizes.
    bool by_message = false;
    /// Uses only inputs of this rank. The result may differ between ranks and is only for
    /// predictions.
    bool alone = false;
  };
  /// Creates a chooser. Collective, unless `alone`. If no candidate is left, the error states for
  /// each one why it is excluded.
  static Result<Chooser> create(const Communicator& comm, const ChooserRequest& question);

  /// Candidates that are the fastest at some size for some requirements, in the order of the list.
  const std::vector<int>& kept() const { return kept_; }
  /// Drops a candidate that could not be created, on all ranks alike. Fails if none is left.
  Result<void> drop(int candidate, const Error& why);
  /// Drops a candidate whose network that reduces could not be set up, with a line of the log. All
  /// ranks alike.
  Result<void> drop_network(int candidate, const Error& why);
  /// Takes over what the communicator's network reduces, once it has one.
  void look_at_network(const Communicator& comm);
  /// True if the network reduces what `tag` says; see `NetworkStep`.
  bool network_reduces(Word tag) const;
  bool by_network(int candidate) const { return facts_[std::size_t(candidate)].by_network; }
  /// Returns the fastest kept candidate that meets the requirements, or -1. A candidate that fails
  /// only a group's requirement reports that itself.
  int pick(Index bytes, CallConstraints demands = {}) const;
  /// Returns the least bytes of a call whose choice windows can change. Calls with fewer need
  /// not look for them.
  Index window_bytes() const { return window_bytes_; }
  /// Returns the choice for `bytes` with reasons. `plan` is the plan that `picked` was created
  /// with.
  Choice explain(Index bytes, int picked, const Plan& plan) const;
  /// Returns the predicted time of a candidate in us.
  double predict(int candidate, Index bytes) const;
  bool usable(int candidate) const { return (usable_ >> candidate & 1) != 0; }
  Path path() const { return path_; }
  /// Case whose rows of a tuning table apply.
  const TuningCase& tuning_case() const { return where_; }

  /// Error that names the requirements that no candidate meets.
  Error none_meets(CallConstraints demands) const;

 private:
  struct Creator;  // src/choose/creator.hpp
  struct Curve {   // measured times of one candidate
    std::vector<double> bytes, us;
  };
  double predict_levels(const CandidateFacts& one, double bytes) const;
  /// True if edges between hosts are RDMA whose bandwidth the topology found.
  bool knows_network() const;
  /// Drops candidates for torn lines whose algorithm can run with whole lines.
  void drop_for_whole_lines();
  /// Drops reductions by loads from peers where the path is not NVLink. They were not measured
  /// there.
  void drop_loads_beyond_nvlink();
  /// Keeps one order of reduction for each kind of functor, among the candidates for that kind.
  void keep_one_order();
  void resolve();
  /// True if a size near `bytes` was measured. Times of other sizes do not apply.
  bool covers(int candidate, double bytes) const;
  bool meets(int candidate, CallConstraints demands) const;
  int best(std::uint64_t among, double bytes, CallConstraints demands) const;
  /// Returns the fastest kept candidate for a call of its own.
  int pick_single(Index bytes, CallConstraints demands) const;
  std::uint64_t kept_set() const;
  int steadiest(CallConstraints demands) const;
  /// Error that says why no candidate is left. `refuser`: another rank, which refuses what others
  /// can run; -1: there is none.
  Error nothing_left(int refuser) const;

  std::vector<CandidateFacts> facts_;
  std::vector<Rates> rates_;
  std::vector<Rates> near_;  // inside a host
  std::vector<CostTerms> cost_terms_;
  std::vector<double> far_;
  std::vector<Curve> curves_;
  std::vector<std::string> out_;  // reason why a candidate is not usable
  std::string op_;
  int rank_ = 0, ranks_ = 1;
  int blocks_ = 1;
  bool only_for_order_ = false;  // no other candidates are usable
  bool gpu_ = false, any_size_ = false, reduces_ = false, by_setting_ = false;
  Path path_ = Path::shm;
  Path inner_path_ = Path::shm;  // inside hosts
  NetworkFacts network_;
  HostFacts host_;
  int hosts_ = 1, locals_ = 1;  // `locals_`: ranks of this host
  TuningCase where_;
  std::uint64_t usable_ = 0;
  std::uint64_t offered_ = 0;                // `usable_` of the creation
  std::array<std::uint32_t, 4> networks_{};  // types that the network reduces, by reduction
  std::vector<int> kept_;
  mutable PickCache picked_;
  Index window_bytes_ = std::numeric_limits<Index>::max();
  int steady_ = -1;  // candidate for all sizes of an operation that reduces nothing
};

}  // namespace ccl::detail
