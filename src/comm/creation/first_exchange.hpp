#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>
#include <ccl/types/result.hpp>

#include <memory>

namespace ccl::detail {

struct CommState;

/// Makes the communicator of ranks that `bootstrap` connects: they exchange their descriptions,
/// take their places on GPUs and prove the paths between them. Null for a lone rank.
Result<void> meet(CommState& state, std::unique_ptr<Bootstrap> bootstrap);

}  // namespace ccl::detail
