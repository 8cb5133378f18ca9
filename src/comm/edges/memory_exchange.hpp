#pragma once

#include <ccl/transport/transport.hpp>

#include <cstddef>
#include <functional>
#include <string_view>

#include "base/io/fd.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

/// Arguments of `share_descriptor`. `composition` is a number that no other composition has. Errors
/// contain `name` and `what`.
struct DescriptorExchange {
  int composition;
  std::string_view name;
  const char* what;
  /// True if this rank and `peer` exchange descriptors; must be equal on both.
  std::function<bool(int peer)> with;
  /// Called with the descriptor of each such peer.
  std::function<Result<void>(int peer, Fd theirs)> take;
};
/// Gives the descriptor `mine` of each rank to other ranks of its host. Succeeds on all ranks or
/// fails on all. Collective; the caller holds the bootstrap, and `so_far` is the result of
/// preparing `mine`.
Result<void> share_descriptor(CommState& state, const DescriptorExchange& exchange, const Fd& mine,
                              const Result<void>& so_far);

/// Arguments of `share_memory`: as those of `share_descriptor`.
struct MemoryExchange {
  int composition;
  std::string_view name;
  const char* what;
  std::size_t bytes;  // of each rank's memory, which is of `shareable_memory`
  std::function<bool(int peer)> with;
  std::function<Result<void>(int peer, const Fd& memory)> take;
  std::function<std::size_t(int peer)> bytes_of = {};  // in place of `bytes`, if ranks differ
};
/// Shares the memory `mine` of each rank: see `share_descriptor`. Fails if a peer gives memory of
/// another size, or one that can be resized.
Result<void> share_memory(CommState& state, const MemoryExchange& exchange, const Fd& mine,
                          const Result<void>& so_far);

/// Returns the edge between this rank and `peer` without a direction.
Edge even_edge(const CommState& state, int composition, int peer);

}  // namespace ccl::detail
