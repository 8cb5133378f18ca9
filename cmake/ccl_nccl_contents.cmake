# Types and reductions of libnccl.so.2: sets ccl_nccl_types and ccl_nccl_redops, and writes the
# header `ccl_nccl_contents` with both. A wheel for GPUs has the default set, which is smaller.
cmake_policy(VERSION 3.25)  # it may be a script
set(all_types std::int8_t std::uint8_t std::int32_t std::uint32_t std::int64_t std::uint64_t float16 float double
  bfloat16 float8_e4m3 float8_e5m2)
set(default_types float float16 bfloat16 std::int32_t std::int64_t double)
set(all_redops Sum Prod Max Min Avg PreMulSum)
set(default_redops Sum Max Min Avg PreMulSum)
set(initial all)
if(CCL_BUILD_PYTHON AND CCL_ENABLE_CUDA)
  set(initial default)
endif()
set(CCL_NCCL_TYPES ${initial} CACHE STRING "Types that libnccl reduces (C++ names), or all, or default: ${default_types}")
set(CCL_NCCL_REDOPS ${initial} CACHE STRING "Reductions that libnccl contains: ${all_redops}; or all, or default: ${default_redops}")
foreach(list IN ITEMS types redops)
  string(TOUPPER CCL_NCCL_${list} chosen)
  set(ccl_nccl_${list} ${${chosen}})
  if(ccl_nccl_${list} MATCHES "^(all|default)$")
    set(ccl_nccl_${list} ${${ccl_nccl_${list}}_${list}})
  endif()
  foreach(one IN LISTS ccl_nccl_${list})
    if(NOT one IN_LIST all_${list})
      list(JOIN all_${list} " " known)
      message(FATAL_ERROR "${chosen} has ${one}, which libnccl does not know; take some of ${known}, or all, or default")
    endif()
  endforeach()
  list(JOIN ccl_nccl_${list} ", " ${list}_text)
endforeach()
# nvcc takes a comma as the end of a definition.
file(CONFIGURE OUTPUT ${ccl_nccl_contents} CONTENT "#pragma once

#include <ccl/any_collective.hpp>

namespace ccl::detail::nccl {
using Types = ccl::Types<@types_text@>;
using Reductions = ccl::Reductions<@redops_text@>;
}  // namespace ccl::detail::nccl
" @ONLY)
