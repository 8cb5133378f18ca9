#pragma once

// Everything in ccl.hpp, and the kernels of the compositions that a translation unit instantiates.

#pragma nv_diagnostic push  // the same warnings as in ccl.hpp
#pragma nv_diag_suppress 20011, 20013, 20014

#include <ccl/ccl.hpp>
#include <ccl/detail/copy/kernels.cuh>
#include <ccl/detail/exchange/kernels.cuh>
#include <ccl/detail/group/kernels.cuh>
#include <ccl/detail/group/list_kernels.cuh>
#include <ccl/detail/map/kernels.cuh>
#include <ccl/detail/peer/kernels.cuh>
#include <ccl/detail/rows/kernels.cuh>
#include <ccl/detail/wire/kernels.cuh>

namespace ccl::detail {

inline const bool has_device_code = program_has_device_code = true;

/// Registers the kernels of a composition. Taking the address instantiates the variable, whose
/// initializer runs before main.
template <class Kernels>
void register_device_code(std::type_identity<Kernels>) {
  (void)&RegisteredKernels<Kernels>::once;
}

}  // namespace ccl::detail

#pragma nv_diagnostic pop
