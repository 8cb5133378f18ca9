# libnccl.so.2: NCCL's C interface over ccl, for programs that were built for NCCL. Its interface is
# declared in src/nccl/abi/abi.hpp, so that no header of NCCL is needed.
set(all_types std::int8_t std::uint8_t std::int32_t std::uint32_t std::int64_t std::uint64_t float16 float double
  bfloat16 float8_e4m3 float8_e5m2)
set(all_redops Sum Prod Max Min Avg PreMulSum)
set(CCL_NCCL_TYPES all CACHE STRING "Types that libnccl reduces (C++ names, such as float and bfloat16), or all")
set(CCL_NCCL_REDOPS all CACHE STRING "Reductions that libnccl contains, or all: ${all_redops}")
foreach(list IN ITEMS types redops)
  string(TOUPPER CCL_NCCL_${list} chosen)
  set(${list} ${${chosen}})
  if(${list} STREQUAL all)
    set(${list} ${all_${list}})
  endif()
  list(JOIN ${list} ", " ${list}_text)
endforeach()
# nvcc takes a comma as the end of a definition.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/nccl/contents.hpp CONTENT "#pragma once

#include <ccl/any_collective.hpp>

namespace ccl::detail::nccl {
using Types = ccl::Types<@types_text@>;
using Reductions = ccl::Reductions<@redops_text@>;
}  // namespace ccl::detail::nccl
" @ONLY)

set(folder ${PROJECT_SOURCE_DIR}/src/nccl)
# Data path: the sources with device code if CUDA is enabled.
function(ccl_nccl_data_path target source)
  add_library(${target} OBJECT ${folder}/${source})
  if(CCL_ENABLE_CUDA)
    set_source_files_properties(${folder}/${source} PROPERTIES LANGUAGE CUDA)
    target_compile_options(${target} PRIVATE -include ccl/ccl.cuh)
  endif()
  target_compile_definitions(${target} PRIVATE ${ARGN})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden)
  target_link_libraries(${target} PRIVATE ccl ccl_warnings)
  target_sources(ccl_nccl PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()

# Other sources: the interface to programs.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
list(FILTER sources EXCLUDE REGEX "/(operations|reduce|rows|devices_.*|signals_none)\\.cpp$")
if(CCL_ENABLE_CUDA)
  list(APPEND sources ${folder}/device/devices_cuda.cpp ${folder}/device/signals_cuda.cu)
else()
  list(APPEND sources ${folder}/device/devices_none.cpp ${folder}/device/signals_none.cpp)
endif()
add_library(ccl_nccl SHARED ${sources})
target_include_directories(ccl_nccl PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(ccl_nccl PRIVATE ccl_runtime ccl ccl_warnings $<$<BOOL:${CCL_ENABLE_CUDA}>:CUDA::cudart_static>)
target_link_options(ccl_nccl PRIVATE -Wl,--version-script=${folder}/exports.map -Wl,--no-undefined -Wl,--gc-sections)
set_target_properties(ccl_nccl PROPERTIES LINK_DEPENDS ${folder}/exports.map)
set_target_properties(ccl_nccl PROPERTIES CXX_VISIBILITY_PRESET hidden OUTPUT_NAME nccl SOVERSION 2
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/nccl)
if(CCL_PCH)
  target_precompile_headers(ccl_nccl PRIVATE ${ccl_pch})
endif()
ccl_nccl_data_path(ccl_nccl_operations operations.cpp)
ccl_nccl_data_path(ccl_nccl_rows rows.cpp)
foreach(op IN ITEMS AllReduce ReduceScatter Reduce)
  foreach(type IN LISTS types)
    string(REGEX REPLACE "std::|_t$" "" short ${type})
    ccl_nccl_data_path(ccl_nccl_${op}_${short} reduce.cpp CCL_NCCL_OP=${op} CCL_NCCL_TYPE=${type})
  endforeach()
endforeach()
# in a folder where programs do not find it in place of NVIDIA's
if(CCL_INSTALL AND NOT CCL_RUNTIME_FROM)
  include(GNUInstallDirs)
  install(TARGETS ccl_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ccl)
endif()
