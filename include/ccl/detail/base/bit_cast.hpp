#pragma once

#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Returns the value of `To` with the bits of `from`. As `cuda::std::bit_cast`, which the
/// libraries of CUDA 12.4 lack. Both types are trivially copyable and of the same size.
template <class To, class From>
CCL_HD constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
