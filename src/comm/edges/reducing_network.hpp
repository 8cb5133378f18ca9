#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <memory>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "transport/collnet/context.hpp"

namespace ccl::detail {

/// A communicator's network that reduces between its hosts, through a plug-in of each rank. Equal
/// on all ranks, except for `context`.
struct ReducingNetwork {
  std::shared_ptr<collnet::Context> context;  // this rank's
  /// Ranks of each host. The first `heads` are its heads: rank n of all hosts form a rail, by
  /// device n of the plug-in.
  std::vector<std::vector<int>> hosts;
  int heads = 0;
  collnet::Support support{};  // what it reduces for all ranks
  unsigned moves = 0;          // operations that it has for all ranks, as bits by `NetworkMove`

  bool contains(NetworkMove move) const { return (moves >> int(move) & 1) != 0; }

  /// Index of a rank's host.
  int host_of(int rank) const;
  /// Largest number of ranks on one host.
  int max_ranks() const;
};

/// Facts of a rank about its plug-in, gathered by all.
struct NetworkInputs {
  int devices = 0;
  int nearest = -1;  // device next to the rank; -1: unknown
  int version = 0;
  unsigned moves = 0;  // as of a `ReducingNetwork`
  collnet::Support support{};
  char name[64] = {};
};

/// Chooses the heads of each host. `hosts` has the ranks of each, in order.
void choose_heads(ReducingNetwork& network, std::vector<std::vector<int>> hosts,
                  const std::vector<NetworkInputs>& all);

/// Returns the communicator's network. The first call opens the plug-ins of all ranks. Collective:
/// succeeds on all ranks or fails on all. The caller holds no lock.
/// - `Errc::not_supported`: CCL_COLLNET_ENABLE is not 1, or too few hosts take part.
/// - `Errc::no_transport`: a rank has no plug-in, or no device.
/// - `Errc::network`: a function of a plug-in failed. `Errc::timed_out`: one has not returned.
/// - `Errc::mismatch`: ranks have different plug-ins.
Result<std::shared_ptr<const ReducingNetwork>> join_network(CommState& state);

/// Returns why this rank cannot use a network that reduces, before it opens the plug-in; empty: it
/// may be able to.
Result<std::string> no_network(const CommState& state);

}  // namespace ccl::detail
