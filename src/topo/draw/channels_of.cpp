#include <ccl/topo/draw.hpp>

namespace ccl::topo {

JoinedChannels channels_of(const Arrangement& arrangement) {
  JoinedChannels all;
  for (int c = 0; c < arrangement.ring_count(); ++c) all.rings.push_back(arrangement.ring(c));
  for (int c = 0; c < 2 * arrangement.tree_count(); ++c) {
    std::vector<TreeLinks>& tree = all.trees.emplace_back();
    for (int r = 0; r < arrangement.ranks(); ++r) {
      const TreePosition at = arrangement.tree(r, -1, c);
      tree.push_back({at.up, {at.down[0], at.down[1], at.down[2]}});
    }
  }
  return all;
}

}  // namespace ccl::topo
