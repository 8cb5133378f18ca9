#pragma once

// ccl.hpp, and the kernels of the compositions that a translation unit instantiates.

#pragma nv_diagnostic push  // as ccl.hpp does
#pragma nv_diag_suppress 20011, 20013, 20014

#include <ccl/ccl.hpp>
#include <ccl/collective/copy_kernels.cuh>
#include <ccl/collective/exchange_kernels.cuh>
#include <ccl/collective/group_kernels.cuh>
#include <ccl/collective/list_kernels.cuh>
#include <ccl/collective/map_kernels.cuh>
#include <ccl/collective/peer_kernels.cuh>
#include <ccl/collective/row_kernels.cuh>
#include <ccl/collective/wire_kernels.cuh>

namespace ccl::detail {

inline const bool has_device_code = program_has_device_code = true;

/// See `enroll`: taking the address instantiates the variable, whose initializer runs before main.
template <class Kernels>
void enroll_device_code(std::type_identity<Kernels>) {
  (void)&Enrolled<Kernels>::once;
}

}  // namespace ccl::detail

#pragma nv_diagnostic pop
