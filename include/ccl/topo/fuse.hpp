#pragma once

#include <ccl/topo/graph.hpp>
#include <ccl/types/result.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::topo {

/// Largest distance between NETs that are fused into one.
enum class FuseLevel : int {
  none,  ///< NETs are not fused
  port,  ///< ports and functions of one card
  pix,   ///< NETs below one PCIe switch
  pxb,   ///< NETs below switches of one CPU's root port
  phb,   ///< NETs of one CPU
  sys    ///< NETs of one host
};
/// Parses LOC, PORT, PIX, PXB, PHB or SYS. Returns false if `text` is none of them.
bool parse(std::string_view text, FuseLevel& level);

/// Rules by which NETs are fused.
struct FuseRules {
  FuseLevel level = FuseLevel::port;
  /// Groups of NETs, by name and port (0: any), that are fused first and at every level.
  std::vector<std::vector<std::pair<std::string, int>>> forced;
  bool same_rail = false;  ///< true: fuses only NETs with the same `rail` attribute
  int most = 4;            ///< NETs in a fused one, at most
};
/// Parses groups such as "mlx5_0:1,mlx5_1:1;mlx5_2,mlx5_3".
[[nodiscard]] Result<std::vector<std::vector<std::pair<std::string, int>>>> parse_groups(
    std::string_view text);

/// Returns the machine with close NETs fused into one, as a transport that stripes over them uses
/// it. Its name is theirs joined by "+", and its bandwidth is their sum. It is placed at the lowest
/// node above all of them. Node indices change.
Graph fuse_nets(const Graph& graph, const FuseRules& rules = {});

}  // namespace ccl::topo
