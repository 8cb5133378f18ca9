#pragma once

#include <memory>

#include "nccl/abi/operations.hpp"
#include "nccl/fallback/rank.hpp"

namespace ccl::detail::nccl {

/// Returns `operations`, whose reductions without code in this library run by the real NCCL. Those
/// of CCL_DETERMINISTIC (`one_order`, or the call's option) do so only where every order of
/// additions gives the same bits, and fail with `Errc::not_supported` otherwise.
std::unique_ptr<Operations> with_fallback(std::unique_ptr<Operations> operations,
                                          std::shared_ptr<RealRank> real, bool one_order);

}  // namespace ccl::detail::nccl
