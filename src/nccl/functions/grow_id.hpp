#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/unique_id.hpp>

#include <optional>

namespace ccl::detail::nccl {

/// Returns the id for a communicator of `ranks`, which is `from` and new ranks. One rank of `from`
/// passes it as `own`. All ranks return the same, or fail alike. Collective.
Result<UniqueId> grow_id(const Communicator& from, int ranks, const std::optional<UniqueId>& own);

}  // namespace ccl::detail::nccl
