#pragma once

#include <ccl/types/macros.hpp>

#include <cuda/std/cstdint>

namespace ccl::detail {

/// In place of a `Reduction` where data is only moved: every collective that reduces nothing is
/// instantiated once, on this.
struct Bytes {
  using Type = cuda::std::uint8_t;
};

/// Whether R combines elements, or only moves bytes.
template <class R>
inline constexpr bool reduces = requires { typename R::Accumulate; };
/// Whether R changes a rank's own data before it travels.
template <class R>
CCL_HD constexpr bool prepares() {
  if constexpr (reduces<R>) return R::prepares;
  return false;
}

}  // namespace ccl::detail
