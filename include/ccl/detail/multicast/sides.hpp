#pragma once

#include <ccl/detail/multicast/work.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Launches that copy the user's buffers to the scratch and from it.
struct CopiedBuffers {
  static constexpr bool in_windows = false;
  struct PartState {};
};

/// Launches whose buffers may lie in windows. All ranks first agree on that, for the send buffers
/// and for the receive buffers. What lies in windows is reduced from there, or stored there. The
/// rest is copied, in parts that fit into the scratch.
struct WindowBuffers {
  static constexpr bool in_windows = true;
  struct PartState {
    bool loads = false, stores = false;  // windows
    Index begin = 0;                     // first element of the part
    Index count = 0;                     // elements of the part
  };
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
