#pragma once

#include <ccl/comm/unique_id.hpp>
#include <ccl/types/result.hpp>

#include <span>

namespace ccl::detail {

/// Tells the root of a rank that it will not join, because of `error`: its settings are refused, or
/// it cannot listen. The ranks that join then fail at once, and need not wait for it. Blocks at
/// most some 2 s.
void decline(std::span<const UniqueId> ids, int rank, int ranks, const Error& error) noexcept;
/// Tells the ranks of a launch that rank 0 will not join, because of `error`. Rank 0 would open the
/// root: it is opened for two seconds, and ranks that come to it get the error.
void decline_as_root(const UniqueId& id, const Error& error) noexcept;

}  // namespace ccl::detail
