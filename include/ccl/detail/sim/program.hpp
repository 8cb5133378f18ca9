#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/detail/sim/record.hpp>
#include <ccl/sim/cluster.hpp>
#include <ccl/sim/report.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace ccl::detail {

/// Teams that run one operation at a time, each by itself. Rank r of team t is rank t * team_stride
/// + r * rank_stride of the cluster.
struct SimTeams {
  const topo::Arrangement* arrangement = nullptr;
  int teams = 1, ranks = 1, team_stride = 0, rank_stride = 1;
  bool networked = false;
};

/// A channel of a rank, or a part of its peers: its trace, and the cluster ranks at the other ends
/// of its wires.
struct SimPosition {
  int rank = 0, channel = 0, trace = 0;
  std::vector<int> in{}, out{};
  topo::EdgeUse use = topo::EdgeUse::pair;
};

/// One launch on every rank.
struct SimStage {
  Plan plan;
  int channels = 1;  // channels in use
  double channels_per_block = 1;
  int servers = 1;  // groups that share the peers of a channel
  Packing packing = Packing::simple;
  double overhead = 1;    // bytes on a wire for each byte of payload
  Index slice_bytes = 0;  // bytes of payload
  std::vector<SimTrace> traces;
  std::vector<SimPosition> positions;
};

/// Program to replay: stages that run one after the other on each rank.
struct SimProgram {
  std::vector<SimStage> stages;
  int period = 0;  // see `sim::Report`
};

struct SimOutcome {
  double us = 0;
  std::vector<double> stage_us;
  Index slices = 0;
  double payload = 0;
  std::vector<sim::LinkLoad> links;
  std::vector<sim::NicLoad> nics;
};
/// Bandwidth inside a node of the cluster, and the generation of its GPUs.
HostFacts host_facts(const sim::Cluster& cluster);
Result<SimOutcome> replay(const sim::Cluster& cluster, const SimProgram& program,
                          const sim::Options& options);
Result<sim::Report> report_of(const sim::Cluster& cluster, const SimProgram& program,
                              const sim::Options& options, std::string name, std::string_view op,
                              Index bytes);
/// Report of `times` runs, one after the other.
sim::Report repeated(sim::Report one, int times);
/// Report of `first` followed by `then`.
sim::Report joined(sim::Report first, const sim::Report& then);
/// Checks the options. `slot_bytes` completes a plan that leaves them open. `line_bytes` are those
/// that the protocol needs to land whole.
Result<void> check_options(const sim::Cluster& cluster, Index bytes, const sim::Options& options,
                           Index slot_bytes, int line_bytes);

/// Checks the distance of neighbors, and the wires of the ranks that would be replayed.
Result<void> check_distance(const sim::Cluster& cluster, int distance);
Result<void> check_wires(const sim::Cluster& cluster, double wires);

/// Returns numbers of nodes after which a pattern may repeat. They are multiples of a domain.
std::vector<int> sim_periods(const sim::Cluster& cluster);
/// True if a team's rings look the same from every `period`-th node.
bool rings_repeat(const sim::Cluster& cluster, const SimTeams& teams, int period);

}  // namespace ccl::detail
