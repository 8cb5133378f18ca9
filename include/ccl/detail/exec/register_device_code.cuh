#pragma once

#include <ccl/detail/exec/device_shape.cuh>
#include <ccl/detail/exec/kernel_registry.hpp>

#include <type_traits>

namespace ccl::detail {

inline const bool has_device_code = program_has_device_code = true;

/// Taking the address instantiates the variable, whose initializer runs before main. See
/// `register_kernels`. Kernels of headers that the program does not include are not registered.
template <class Kernels>
  requires(sizeof(RegisteredKernels<Kernels>) > 0)
void register_device_code(std::type_identity<Kernels>) {
  (void)&RegisteredKernels<Kernels>::once;
}

}  // namespace ccl::detail
