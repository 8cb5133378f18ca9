#pragma once

#include <ccl/element/element.hpp>
#include <ccl/element/small_float.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Map functor that converts elements to `To` through `accumulate_t<To>`, rounding to nearest. A
/// program's own type is converted by its `Element` specialization.
template <class To>
struct Convert {
  static constexpr const char* name = "convert";
  template <class From>
  CCL_HD constexpr To operator()(const From& value) const {
    using Wide = accumulate_t<To>;
    const auto wide = Element<From>::widen(value);
    if constexpr (cuda::std::is_same_v<accumulate_t<From>, double> &&
                  cuda::std::is_same_v<Wide, float> && sizeof(To) < 4) {
      return Element<To>::narrow(detail::to_odd_float(wide));
    } else {
      return Element<To>::narrow(static_cast<Wide>(wide));
    }
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
