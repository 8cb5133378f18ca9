#pragma once

#include <ccl/choose/choice.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/algo/cost.hpp>
#include <ccl/types/plan.hpp>
#include <ccl/detail/choose/tuning.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ccl::detail {

struct TransportTable;

/// A candidate as values.
struct CandidateFacts {
  const char* algo;
  const char* proto;
  Mover mover = Mover::wires;
  Packing packing = Packing::simple;
  int line_bytes = 16;  // that must land at once
  int gpu_lanes = 32;   // of one channel
  SumOrder order = SumOrder::varies;
  bool takes_all = true;    // every reduction, as far as the algorithm has a say
  bool carries_all = true;  // the same of the protocol, and of elements
  bool reorders = false;    // the ranks, so that it needs a commutative functor
  bool for_order = false;   // for functors that are not commutative only, unless it is alone
  bool in_windows = false;  // takes receive buffers in windows only
  bool on_cpus = true, on_gpus = true;
  bool (*takes_ranks)(int ranks) = nullptr;  // null: any number
  CostTerms (*cost_terms)(int ranks) = nullptr;
  const TransportTable* transport_table = nullptr;
  double (*inter_node_fraction)(int ranks, int hosts) = nullptr;    // of its hops; null: all
  double (*inter_node_volume)(int ranks, int hosts) = nullptr;  // between hosts; null: of `cost_terms`
  std::array<LevelStep, 3> steps{};  // of one that runs others on levels, in order
  int step_count = 0;
  bool by_rail = false;  // it wants as many ranks on every host,
  bool by_rank = false;  // and ranks numbered host by host or around the hosts
  bool relays = false;   // messages between hosts by way of other ranks: see CCL_PXN_DISABLE

  std::string name() const { return std::string{algo} + "/" + proto; }
};

/// What a call asks of its candidate.
struct CallConstraints {
  bool any_reduction = false;  // one that not every algorithm takes
  bool not_commutative = false;
  bool any_elements = false;  // ones that not every protocol carries, or such a reduction of them
  bool in_window = false;     // peers can write to the receive buffer, on all ranks alike
  bool in_group = false;      // with other calls, which what runs on levels takes no part in
  int part = -1;  // the candidate that would share the group's kernel: taken where no other is
                  // faster by more than a launch takes; -1: none
};

/// Chooses between candidates. What it goes by is equal on all ranks: the operation, the number of
/// bytes, what ranks said of themselves when they met, and the settings, tables and limits that
/// `create` compares; so all ranks choose alike.
class Chooser {
 public:
  struct ChooserRequest {
    const char* op = "";
    std::span<const CandidateFacts> candidates;
    bool deterministic = false;  // only candidates of one order
    bool reduces = false;
    /// Ranks may call with different sizes: what is picked is for one message between two ranks.
    /// With checking on all ranks must call alike, and one candidate does for all sizes.
    bool by_message = false;
    /// By what this rank knows, without the others: what it leads to may differ from theirs, and
    /// counts for a prediction only.
    bool alone = false;
  };
  /// Collective, unless `alone`. An error says why each candidate is out if none is left.
  static Result<Chooser> create(const Communicator& comm, const ChooserRequest& question);

  /// Candidates that are the fastest at some size, for some demands, in the order of the list.
  const std::vector<int>& kept() const { return kept_; }
  /// Leaves out what could not be created, on all ranks alike; an error if nothing is left.
  Result<void> drop(int candidate, const Error& why);
  /// The fastest that meets the demands, of those kept; -1: none does. What only the demand of a
  /// group is not met by says so itself.
  int pick(Index bytes, CallConstraints demands = {}) const;
  /// The same, with reasons. `plan_of` is the plan that the picked one was created with.
  Choice explain(Index bytes, int picked, const Plan& plan) const;
  /// Microseconds that a candidate is thought to take.
  double predict(int candidate, Index bytes) const;
  bool usable(int candidate) const { return (usable_ >> candidate & 1) != 0; }
  Path path() const { return path_; }
  /// The rows of a table that count here.
  const TuningCase& tuning_case() const { return where_; }

  /// What no candidate of a call meets.
  Error none_meets(CallConstraints demands) const;

 private:
  struct Curve {  // measured times of one candidate
    std::vector<double> bytes, us;
  };
  double predict_levels(const CandidateFacts& one, double bytes) const;
  /// For each kind of functor, of those candidates that are for it.
  void keep_one_order();
  void resolve();
  /// Was it measured near such a size? What a table says of other sizes says nothing of this one.
  bool covers(int candidate, double bytes) const;
  bool meets(int candidate, CallConstraints demands) const;
  int best(std::uint64_t among, double bytes, CallConstraints demands) const;
  int steadiest(CallConstraints demands) const;
  Error nothing_left() const;

  std::vector<CandidateFacts> facts_;
  std::vector<Rates> rates_;
  std::vector<Rates> near_;  // inside a host
  std::vector<CostTerms> cost_terms_;
  std::vector<double> far_;
  std::vector<Curve> curves_;
  std::vector<std::string> out_;  // why a candidate is not usable
  std::string op_;
  int rank_ = 0, ranks_ = 1;
  int blocks_ = 1;
  bool only_for_order_ = false;  // no others are usable
  bool gpu_ = false, any_size_ = false, reduces_ = false, by_setting_ = false;
  Path path_ = Path::shm;
  Path inner_path_ = Path::shm;  // inside hosts
  int hosts_ = 1, locals_ = 1;   // ranks of this one
  TuningCase where_;
  std::uint64_t usable_ = 0;
  std::vector<int> kept_;
  int steady_ = -1;  // where one candidate does for all sizes; of operations that reduce nothing
};

}  // namespace ccl::detail
