#pragma once

// Everything in ccl.hpp, and the kernels of the compositions that a translation unit instantiates.

#pragma nv_diagnostic push  // the same warnings as in ccl.hpp
#pragma nv_diag_suppress 20011, 20013, 20014

#include <ccl/ccl.hpp>
#include <ccl/collective.cuh>
#include <ccl/detail/group/kernels.cuh>
#include <ccl/detail/group/list_kernels.cuh>
#include <ccl/detail/map/kernels.cuh>
#include <ccl/detail/rows/kernels.cuh>

#pragma nv_diagnostic pop
