#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/wire/dry_run.hpp>

#include <vector>

namespace ccl::detail {

/// Collects the peers that an algorithm names for its positions. Argument of `Algo::peers`.
struct PeersOfPositions {
  const Connections& connections;
  int root_rank;
  int channel = 0;
  std::vector<PeerChannel> in{}, out{};
  // An algorithm that asks for its place in a ring or tree names its neighbors there.
  mutable topo::EdgeUse use = topo::EdgeUse::pair;
  int rank() const { return connections.comm().rank(); }
  int ranks() const { return connections.comm().ranks(); }
  int root() const { return root_rank; }
  RingPosition ring() const {
    use = topo::EdgeUse::ring;
    return connections.positions().ring(channel);
  }
  TreePosition tree() const {
    use = topo::EdgeUse::tree;
    return connections.positions().tree(channel, root_rank);
  }
  HostPosition host() const {
    const auto& hosts = connections.positions().hosts;
    return hosts.empty() ? HostPosition{} : hosts[std::size_t(channel)];
  }
  void from(int peer) { in.push_back({peer, channel, use}); }
  void to(int peer) { out.push_back({peer, channel, use}); }
};

/// Properties of an algorithm's positions.
struct PositionsOf {
  void (*peers)(PeersOfPositions& positions);
  bool double_tree;  // two trees; else one
  bool by_root;      // see `wires_by_root`
  bool rooted;
  /// Dry run of an algorithm that is not validated, which may name absent shares; else null.
  void (*dry_run)(const DryRunPosition& position, DryRunResult& found);
};
template <class Op, class Algo>
constexpr auto dry_run_of() -> decltype(PositionsOf::dry_run) {
  if constexpr (!is_validated<Algo> && !Exchanges<Op, Algo>) return &dry_run<Op, Algo>;
  return nullptr;
}
template <class Op, class Algo>
constexpr PositionsOf positions_of() {
  constexpr bool one_tree = [] {
    if constexpr (requires { Algo::one_tree; }) return Algo::one_tree;
    return false;
  }();
  return {[](PeersOfPositions& positions) { Algo::peers(positions); }, !Op::rooted && !one_tree,
          wires_by_root<Op, Algo>, Op::rooted, dry_run_of<Op, Algo>()};
}

/// Connects the peers that the positions of a launch with this root name, if they are not connected
/// yet. Collective in that case. `so_far`: as for `Connections::connect`.
Result<void> connect_positions(Connections& connections, const PositionsOf& of, int root,
                               const Result<void>& so_far = {});

template <class Op, class Algo>
inline constexpr PositionsOf all_positions = positions_of<Op, Algo>();

}  // namespace ccl::detail
