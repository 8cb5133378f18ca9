#pragma once

#include <ccl/comm/communicator.hpp>

namespace ccl::detail::nccl {

/// Reads CCL_DETERMINISTIC. Collective. Fails with `Errc::mismatch` on all ranks if it differs
/// between them, because they would run different compositions.
Result<bool> wants_one_order(const Communicator& comm);

}  // namespace ccl::detail::nccl
