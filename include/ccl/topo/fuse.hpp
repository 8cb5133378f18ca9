#pragma once

#include <ccl/types/result.hpp>
#include <ccl/topo/graph.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::topo {

/// How far apart NETs may be that count as one.
enum class FuseLevel : int {
  none,  // every NET is one of its own
  port,  // ports and functions of one card
  pix,   // below one PCIe switch
  pxb,   // below switches of one CPU's root port
  phb,   // of one CPU
  sys    // of one host
};
/// LOC, PORT, PIX, PXB, PHB or SYS; false if `text` is none of them.
bool parse(std::string_view text, FuseLevel& level);

struct FuseRules {
  FuseLevel level = FuseLevel::port;
  /// Groups of NETs, by name and port (0: any), that are fused whatever the level; these first.
  std::vector<std::vector<std::pair<std::string, int>>> forced;
  bool same_rail = false;  // only NETs whose `rail` attribute is the same
  int most = 4;            // NETs in one
};
/// "mlx5_0:1,mlx5_1:1;mlx5_2,mlx5_3" as groups.
[[nodiscard]] Result<std::vector<std::vector<std::pair<std::string, int>>>> parse_groups(
    std::string_view text);

/// The machine with NETs that are close to each other fused into one, whose name is theirs joined
/// by
/// "+" and whose bandwidth is their sum, as a transport that stripes over them sees it. It stands
/// at the lowest place that is above all of them. Node indices change.
Graph fuse_nets(const Graph& graph, const FuseRules& rules = {});

}  // namespace ccl::topo
