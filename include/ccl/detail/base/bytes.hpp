#pragma once

#include <ccl/types/macros.hpp>

#include <cuda/std/cstdint>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Replaces `Reduction` in collectives that only move data. These collectives are instantiated
/// once, for this type.
struct Bytes {
  using Type = cuda::std::uint8_t;
};

/// True if R combines elements, false if it only moves bytes.
template <class R>
inline constexpr bool reduces = requires { typename R::Accumulate; };
/// Returns true if R changes a rank's own data before it is sent.
template <class R>
CCL_HD constexpr bool prepares() {
  if constexpr (reduces<R>) return R::prepares;
  return false;
}
/// Returns true if R changes whole results.
template <class R>
CCL_HD constexpr bool completes() {
  if constexpr (reduces<R>) return R::completes;
  return false;
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
