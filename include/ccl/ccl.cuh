#pragma once

// Everything in ccl.hpp, and the kernels of the compositions that a translation unit instantiates.

#include <ccl/ccl.hpp>
#include <ccl/collective.cuh>
#include <ccl/detail/group/kernels.cuh>
#include <ccl/detail/group/list_kernels.cuh>
#include <ccl/detail/map/kernels.cuh>
#include <ccl/detail/rows/kernels.cuh>
