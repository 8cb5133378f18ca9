#pragma once

#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/choose/tuning.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "choose/edges.hpp"
#include "comm/host_shape.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

/// One creation of a chooser. The steps of `create`, in order, fill `made`.
struct Chooser::Creator {
  /// Values that the ranks compare before they choose.
  struct ChooserInputs {
    std::uint64_t usable = 0;
    std::uint64_t table = 0;  // hash of the measurements that count here
    std::uint64_t list = 0;   // hash of the candidates' names
    char operation[32]{};     // the first characters of its name
    std::int32_t path = 0;
    std::int32_t inner_path = 0;  // inside its host
    std::int32_t blocks = 0;
    std::int32_t max_ctas = 0;  // 0: the default
    std::int32_t rdma = 1;      // all edges over a network are RDMA
  };

  Creator(CommState& of, const ChooserRequest& asked) : state{of}, question{asked} {}

  CommState& state;
  const ChooserRequest& question;
  Chooser made;
  HostShape shape;
  bool no_relays = false;
  std::vector<Edges> edges;                  // of the connectors of candidates
  std::optional<std::string> peers_refused;  // set once asked for
  ChooserInputs mine;
  TuningTable table;
  int refuser = -1;  // first other rank that refuses what others can run, if none is left

  Result<void> list_candidates();
  /// Decides which candidates this rank can run.
  Result<void> check_candidates();
  /// Returns why this rank cannot run a candidate; empty if it can.
  Result<std::string> refusal(const CandidateFacts& one);
  Result<std::string> setting_refusal(const CandidateFacts& one) const;
  std::string edge_refusal(const CandidateFacts& one);
  /// Returns why a candidate has no network that reduces; empty if it may have one.
  Result<std::string> network_refusal(const CandidateFacts& one);
  const Edges& edges_by(const TransportTable* transport_table);
  Result<TuningTable> read_table() const;
  /// Compares the inputs of all ranks. Collective, unless the chooser is for this rank alone.
  Result<void> agree();
  /// Fails if ranks create other operations, from other lists or by other tables.
  Result<void> compare(const std::vector<ChooserInputs>& all);
  void merge(const ChooserInputs& other, int rank);
  /// First candidate that `rank` refuses and another rank does not; -1: there is none.
  int refused_alone(const std::vector<ChooserInputs>& all, int rank) const;
  /// Collects why ranks refuse what others can run. Collective, if no candidate is left.
  Result<void> explain_refusals(const std::vector<ChooserInputs>& all);
  void add_measurements();
  void add_model();
};

}  // namespace ccl::detail
