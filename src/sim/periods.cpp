#include <ccl/detail/sim/program.hpp>

#include <utility>
#include <vector>

namespace ccl::detail {

std::vector<int> sim_periods(const sim::Cluster& cluster) {
  const int nodes = cluster.nodes(), domain = cluster.domain_nodes();
  if (domain == 1 || domain == nodes) return {1, 2, 4};
  if (nodes % domain != 0) return {};
  return {domain, 2 * domain, 4 * domain};
}

bool rings_repeat(const sim::Cluster& cluster, const SimTeams& teams, int period) {
  const int nodes = cluster.nodes(), locals = cluster.locals();
  if (teams.teams > 1 && teams.rank_stride == 1) return true;  // each node by itself
  for (int way = 0; way < teams.arrangement->ring_count(); ++way) {
    const std::vector<int>& order = teams.arrangement->ring(way);
    const int count = int(order.size());
    // [node % period][local]: how many nodes on, and to which local rank.
    std::vector<std::pair<int, int>> next(std::size_t(period) * locals, {-1, -1});
    for (int i = 0; i < count; ++i) {
      const int here = order[std::size_t(i)] * teams.rank_stride;
      const int there = order[std::size_t((i + 1) % count)] * teams.rank_stride;
      const std::pair<int, int> step{(there / locals - here / locals + nodes) % nodes,
                                     there % locals};
      auto& known = next[std::size_t((here / locals % period) * locals + here % locals)];
      if (known.first >= 0 && known != step) return false;
      known = step;
    }
  }
  return true;
}

}  // namespace ccl::detail
