#pragma once

#include <ccl/detail/exec/kernel_registry.hpp>

#include <span>
#include <type_traits>

namespace ccl::detail {

/// One launch of several calls, each with its own work. A work without elements (peer view) or
/// without channels (wires) has no part in the launch.
template <class... Calls>
struct GroupKernels {
  static inline int (*launch)(const DeviceTarget&, const typename Calls::Work&...) = nullptr;
};
/// One launch of at most `max_listed` calls of one kind.
template <class Call>
struct ListKernels {
  static inline int (*launch)(const DeviceTarget&, std::span<const typename Call::Work>) = nullptr;
};
/// Number of calls whose works fit into a kernel's arguments, 4,000 bytes.
template <class Call>
inline constexpr int max_listed = [] {
  if constexpr (std::is_void_v<Call>)
    return 16;  // each call is a launch of its own
  else
    return int((4000 - sizeof(int)) / (sizeof(typename Call::Work) + sizeof(int)));
}();

}  // namespace ccl::detail
