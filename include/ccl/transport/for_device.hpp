#pragma once

#include <ccl/transport/transport.hpp>

namespace ccl {

/// `T` between CPU ranks only. A composition over it has no kernels and adds no compile time in
/// nvcc.
template <Transport T>
struct ForCpus : T {
  using ForBoth = T;
  static constexpr bool for_gpus = false;
};
/// `T` between GPUs only. A composition over it has no code for CPU lanes.
template <Transport T>
struct ForGpus : T {
  using ForBoth = T;
  static constexpr bool for_cpus = false;
};

template <class T>
inline constexpr bool offers_peer_view<ForCpus<T>> = false;
template <class T>
inline constexpr bool offers_peer_view<ForGpus<T>> = offers_peer_view<T>;
template <class T>
inline constexpr bool offers_network<ForCpus<T>> = offers_network<T>;
template <class T>
inline constexpr bool offers_network<ForGpus<T>> = offers_network<T>;
template <class T>
inline constexpr MulticastKind multicast_of<ForCpus<T>> = multicast_of<T>;
template <class T>
inline constexpr MulticastKind multicast_of<ForGpus<T>> = multicast_of<T>;

namespace detail {
/// Execution spaces of a composition.
struct ExecSpaces {
  bool cpus = true, gpus = true;
};
template <class T>
constexpr ExecSpaces exec_spaces() {
  ExecSpaces sides;
  if constexpr (requires { T::for_cpus; }) sides.cpus = T::for_cpus;
  if constexpr (requires { T::for_gpus; }) sides.gpus = T::for_gpus;
  return sides;
}
}  // namespace detail

}  // namespace ccl
