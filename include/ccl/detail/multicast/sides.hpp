#pragma once

#include <ccl/detail/multicast/work.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Launches that copy the user's buffers to the scratch and from it.
struct CopiedBuffers {
  static constexpr bool in_windows = false;
  template <class Multicast>
  struct Sides {
    template <class R>
    CCL_HD explicit Sides(const MulticastWork<R>&) {}
  };
};

/// Launches whose buffers may lie in windows. All ranks first agree on that, for the send buffers
/// and for the receive buffers. What lies in windows is reduced from there, or stored there. The
/// rest is copied, in parts that fit into the scratch.
struct WindowBuffers {
  static constexpr bool in_windows = true;
  template <class Multicast>
  struct Sides {
    template <class R>
    CCL_HD explicit Sides(const MulticastWork<R>& work)
        : send{work.send.all, work.send.windows}, recv{work.recv.all, work.recv.windows} {}
    Multicast send, recv;
    bool loads = false, stores = false;  // windows
    Index begin = 0;                     // first element of the part
    Index count = 0;                     // elements of the part
    Index row_tiles = 0;                 // tiles of a row of the scratch
  };
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
