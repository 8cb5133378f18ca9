#pragma once

#include <ccl/algo/hierarchical.hpp>
#include <ccl/detail/sim/exchange.hpp>
#include <ccl/detail/sim/launch.hpp>
#include <ccl/detail/sim/program.hpp>
#include <ccl/sim/cluster.hpp>
#include <ccl/sim/report.hpp>
#include <ccl/types/operations.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ccl::detail {

template <class Op, class Algo>
constexpr bool can_simulate() {
  if constexpr (is_hierarchical<Algo>) {
    return is_one_of<Op, AllReduce, AllGather, ReduceScatter> && Algo::rails &&
           Algo::template supports<Op>;
  } else if constexpr (requires { Algo::serves_pairs; }) {
    return is_one_of<Op, AllToAll, SendRecv> && Algo::template supports<Op>;
  } else {
    return is_one_of<Op, AllReduce, AllGather, ReduceScatter, Broadcast, Reduce> &&
           Algo::template supports<Op>;
  }
}
/// True if the positions can be recorded. That holds for algorithms over wires that run by steps,
/// for exchanges of messages over wires, and for two levels if they use rails.
template <class Op, class Algo>
inline constexpr bool simulates = can_simulate<Op, Algo>();

/// Replays launches one after the other, in the order given.
template <class... Launches>
[[nodiscard]] Result<sim::Report> replay_all(const sim::Cluster& cluster,
                                             const sim::Options& options, std::string name,
                                             const char* op, Index bytes, Launches&... launches) {
  SimProgram program;
  for (const int period : sim_periods(cluster)) {
    if (!options.every_node && (launches.repeats(period) && ...)) {
      program.period = period;
      break;
    }
  }
  if constexpr (sizeof...(launches) > 1) {
    if (program.period == 0 && !options.every_node) {
      // Levels are alike on all ranks, and begin when the previous one has ended. If they repeat,
      // one node represents all.
      std::optional<sim::Report> whole;
      Result<void> well;
      const auto play = [&](auto& launch) {
        if (!well) return;
        auto report = replay_all(cluster, options, name, op, bytes, launch);
        if (!report) {
          well = fail(std::move(report).error());
        } else {
          whole = whole ? joined(std::move(*whole), *report) : std::move(*report);
        }
      };
      (play(launches), ...);
      CCL_CHECK(std::move(well));
      return std::move(*whole);
    }
  }
  const int nodes = program.period > 0 ? program.period : cluster.nodes();
  double slices = 0;
  ((slices += launches.length().slices * nodes * cluster.locals()), ...);
  const double part = std::min(1.0, double(options.budget) / std::max(slices, 1.0));
  const auto limit = [&](const auto& length) {
    return part < 1 ? std::max<Index>(Index(length.rounds * part), length.least)
                    : Index(length.rounds) + 2;
  };
  ((program.stages.push_back(launches.record(nodes, limit(launches.length())))), ...);
  return report_of(cluster, program, options, std::move(name), op, bytes);
}

/// Simulates level by level: the ranks of a node, and the n-th ranks of all nodes.
template <class Op, class Levels, class Proto>
[[nodiscard]] Result<sim::Report> simulate_levels(const sim::Cluster& cluster, Index bytes,
                                                  const sim::Options& options) {
  using Inner = typename Levels::InnerAlgo;
  using Outer = typename Levels::OuterAlgo;
  using InnerProto = typename Levels::template InnerProto<Proto>;
  using OuterProto = typename Levels::template OuterProto<Proto>;
  const int nodes = cluster.nodes(), locals = cluster.locals();
  const SimTeams inside{&cluster.inside(), nodes, locals, locals, 1, false};
  const SimTeams across{&cluster.across(), locals, nodes, 1, locals, cluster.networked()};
  const std::string name = std::string{Op::name} + "/" + Levels::name + "/" + Proto::name;
  if (nodes == 1 || locals == 1) {
    SimLaunch<Op, Inner, InnerProto> inner{cluster, inside, bytes, options};
    SimLaunch<Op, Outer, OuterProto> outer{cluster, across, bytes, options};
    if (nodes == 1) return replay_all(cluster, options, name, Op::name, bytes, inner);
    return replay_all(cluster, options, name, Op::name, bytes, outer);
  }
  const Index rail = div_up<Index>(bytes, locals);
  SimLaunch<Op, Outer, OuterProto> outer{cluster, across, rail, options};
  if constexpr (cuda::std::is_same_v<Op, AllReduce>) {
    SimLaunch<ReduceScatter, Inner, InnerProto> first{cluster, inside, bytes, options};
    SimLaunch<AllGather, Inner, InnerProto> last{cluster, inside, bytes, options};
    return replay_all(cluster, options, name, Op::name, bytes, first, outer, last);
  } else {
    // Inside, there is one call for each node's part of the message: ranks are numbered node by
    // node.
    SimLaunch<Op, Inner, InnerProto> inner{cluster, inside, div_up<Index>(bytes, nodes), options};
    CCL_TRY(auto one, replay_all(cluster, options, name, Op::name, bytes, inner));
    one = repeated(std::move(one), nodes);
    CCL_TRY(auto between, replay_all(cluster, options, name, Op::name, bytes, outer));
    if constexpr (cuda::std::is_same_v<Op, AllGather>) return joined(std::move(between), one);
    return joined(std::move(one), between);
  }
}

}  // namespace ccl::detail

namespace ccl::sim {

/// Simulates a message of `bytes` bytes. Runs the algorithm's own code on every class of positions,
/// under the plan of a communicator. Then replays the recorded steps on a virtual clock over the
/// machine's links.
template <class Op, class Algo, class Proto>
[[nodiscard]] Result<Report> simulate(const Cluster& cluster, Index bytes,
                                      const Options& options = {}) {
  static_assert(detail::simulates<Op, Algo>, "ccl: this algorithm has no steps to simulate");
  Index slot_bytes = Proto::default_slot_bytes;
  if constexpr (detail::is_hierarchical<Algo>) {
    slot_bytes = std::max<Index>(Algo::template InnerProto<Proto>::default_slot_bytes,
                                 Algo::template OuterProto<Proto>::default_slot_bytes);
  }
  CCL_CHECK(detail::check_options(cluster, bytes, options, slot_bytes, Proto::line_bytes));
  if constexpr (detail::is_hierarchical<Algo>) {
    return detail::simulate_levels<Op, Algo, Proto>(cluster, bytes, options);
  } else if constexpr (requires { Algo::serves_pairs; }) {
    return detail::simulate_exchange<Op, Algo, Proto>(cluster, bytes, options);
  } else {
    detail::SimTeams all{&cluster.whole(), 1, cluster.ranks(), 0, 1, cluster.networked()};
    detail::SimLaunch<Op, Algo, Proto> launch{cluster, all, bytes, options};
    return detail::replay_all(cluster, options,
                              std::string{Op::name} + "/" + Algo::name + "/" + Proto::name,
                              Op::name, bytes, launch);
  }
}

/// Composition by names, as in settings: "all_reduce", "Ring", "Simple". Case does not matter.
struct Composition {
  std::string op, algo, proto;
};
/// Returns the compositions that can be simulated and match `wanted`; an empty name matches any. An
/// unknown name is an error that lists the known ones.
[[nodiscard]] Result<std::vector<Composition>> compositions(const Composition& wanted);
[[nodiscard]] Result<Report> simulate(const Cluster& cluster, const Composition& what, Index bytes,
                                      const Options& options = {});

}  // namespace ccl::sim
