#pragma once

#include <cuda/std/cstdint>

namespace ccl {

/// In place of a `Reduction` where data is only moved: every collective that reduces nothing is
/// instantiated once, on this.
struct Bytes {
  using Type = cuda::std::uint8_t;
};

namespace detail {
/// Whether R combines elements, or only moves bytes.
template <class R>
inline constexpr bool reduces = requires {
  typename R::Accumulate;
};
}  // namespace detail

}  // namespace ccl
