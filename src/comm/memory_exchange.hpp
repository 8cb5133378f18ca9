#pragma once

#include <ccl/transport/transport.hpp>

#include <functional>
#include <string_view>

#include "comm/state.hpp"
#include "base/fd.hpp"

namespace ccl::detail {

/// Shares memory of each rank with others of its host. Collective; the caller holds the bootstrap,
/// and whether two ranks share is the same at both. The number is one that no other composition
/// has; `name` and `what` stand in errors.
struct MemoryExchange {
  int composition;
  std::string_view name;
  const char* what;
  std::function<bool(int peer)> with;
  /// Called with the memory of each such peer.
  std::function<Result<void>(int peer, const Fd& memory)> take;
};
/// `so_far`: what this rank has prepared, `mine` too. Succeeds on all ranks or on none.
Result<void> share_memory(CommState& state, const MemoryExchange& exchange, const Fd& mine,
                          const Result<void>& so_far);

/// The edge between this rank and `peer`, whose two ends have no direction.
Edge even_edge(const CommState& state, int composition, int peer);

}  // namespace ccl::detail
