# Tests that read the sources or build other projects.

foreach(check IN ITEMS layers results tests format readme tables multicast)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.${check}
    COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/cmake/check_${check}.cmake)
  set_tests_properties(${CCL_TEST_PREFIX}ccl.${check} PROPERTIES SKIP_REGULAR_EXPRESSION "SKIP: ")
endforeach()

# The oldest toolkit, and the first that knows all architectures, if their headers are there
# (cmake/setup.sh --docs).
foreach(version IN ITEMS 12.4 12.8)
  string(REPLACE . _ name toolkit_${version})
  set(wheels ${PROJECT_SOURCE_DIR}/.deps/cuda-${version}/nvidia)
  if(EXISTS ${wheels}/cuda_runtime/include/cuda.h)
    add_test(NAME ${CCL_TEST_PREFIX}ccl.${name} COMMAND ${CMAKE_COMMAND}
      -Dcompiler=${CMAKE_CXX_COMPILER} -Dsource=${PROJECT_SOURCE_DIR} -Dinclude=${PROJECT_BINARY_DIR}/include
      "-Dheaders=${wheels}/cuda_runtime/include ${wheels}/cuda_nvcc/include ${wheels}/cuda_cccl/include"
      -Dto=${CMAKE_CURRENT_BINARY_DIR}/${name} -P ${CMAKE_CURRENT_SOURCE_DIR}/support/check_toolkit.cmake)
  endif()
endforeach()
# Functions of the device interface as LLVM bitcode: clang 16 knows the headers of CUDA 12.4.
find_program(CCL_CLANG_16 clang++-16)
find_program(CCL_LLC_16 llc-16)
set(wheels ${PROJECT_SOURCE_DIR}/.deps/cuda-12.4/nvidia)
if(CCL_CLANG_16 AND EXISTS ${wheels}/cuda_runtime/include/cuda.h)
  find_program(CCL_PTXAS ptxas HINTS ${CUDAToolkit_BIN_DIR})
  add_test(NAME ${CCL_TEST_PREFIX}ccl.bitcode COMMAND ${CMAKE_COMMAND} -Dclang=${CCL_CLANG_16} -Dllc=${CCL_LLC_16}
    -Dptxas=${CCL_PTXAS} -Dsource=${PROJECT_SOURCE_DIR} -Dinclude=${PROJECT_BINARY_DIR}/include
    "-Dheaders=${wheels}/cuda_runtime/include ${wheels}/cuda_nvcc/include ${wheels}/cuda_cccl/include"
    -Dto=${CMAKE_CURRENT_BINARY_DIR}/bitcode -P ${CMAKE_CURRENT_SOURCE_DIR}/support/check_bitcode.cmake)
endif()
add_test(NAME ${CCL_TEST_PREFIX}ccl.nccl_contents COMMAND ${CMAKE_COMMAND} -Dsource=${PROJECT_SOURCE_DIR}
  -Dto=${CMAKE_CURRENT_BINARY_DIR}/nccl_contents -P ${CMAKE_CURRENT_SOURCE_DIR}/support/check_nccl_contents.cmake)

# The layer check must report each of these, and a folder of too many files.
file(GLOB plants ${CMAKE_CURRENT_SOURCE_DIR}/layer_violations/*)
set(crowded ${CMAKE_CURRENT_BINARY_DIR}/layer_violations/crowded_folder)
foreach(number RANGE 1 31)
  file(WRITE ${crowded}/src/net/file_${number}.cpp "")
endforeach()
foreach(plant IN LISTS plants ITEMS ${crowded})
  get_filename_component(name ${plant} NAME)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.layers.sees.${name} COMMAND ${CMAKE_COMMAND}
    -Droot=${plant} -P ${PROJECT_SOURCE_DIR}/cmake/check_layers.cmake)
  set_tests_properties(${CCL_TEST_PREFIX}ccl.layers.sees.${name} PROPERTIES
    PASS_REGULAR_EXPRESSION "must not include|is no layer|is paid|more than 30")
endforeach()

# The check of multicast must report each of these.
file(GLOB plants ${CMAKE_CURRENT_SOURCE_DIR}/multicast_violations/*)
foreach(plant IN LISTS plants)
  get_filename_component(name ${plant} NAME)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.multicast.sees.${name} COMMAND ${CMAKE_COMMAND}
    -Droot=${plant} -P ${PROJECT_SOURCE_DIR}/cmake/check_multicast.cmake)
  set_tests_properties(${CCL_TEST_PREFIX}ccl.multicast.sees.${name} PROPERTIES
    PASS_REGULAR_EXPRESSION "which only|does not name")
endforeach()

# What each source includes, which builds by folders hide. The check must report each plant.
find_program(CCL_PYTHON python3)
if(CCL_PYTHON)
  set(check ${CCL_PYTHON} ${PROJECT_SOURCE_DIR}/tools/check_includes.py)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.includes COMMAND ${check})
  file(GLOB plants RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/include_violations ${CMAKE_CURRENT_SOURCE_DIR}/include_violations/*)
  foreach(plant IN LISTS plants)
    add_test(NAME ${CCL_TEST_PREFIX}ccl.includes.sees.${plant} COMMAND ${check} ${CMAKE_CURRENT_SOURCE_DIR}/include_violations/${plant})
    set_tests_properties(${CCL_TEST_PREFIX}ccl.includes.sees.${plant} PROPERTIES
      PASS_REGULAR_EXPRESSION "root\\..pp uses [A-Za-z_]+ and lacks ")
  endforeach()
endif()

get_target_property(elsewhere fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
set(system_dirs ${CUDAToolkit_INCLUDE_DIRS} ${elsewhere})
list(REMOVE_ITEM system_dirs /usr/include elsewhere-NOTFOUND)
foreach(dir IN LISTS CUDAToolkit_INCLUDE_DIRS)
  list(APPEND system_dirs ${dir}/cccl)
endforeach()
list(TRANSFORM system_dirs PREPEND -isystem)

# clang warns while it optimizes, at any place of a header that is in use.
find_program(CCL_CLANG NAMES clang++ clang++-14)
if(CCL_CLANG)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.consume.clang COMMAND ${CCL_CLANG} -std=c++20 -O2
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wold-style-cast -Werror
    -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_BINARY_DIR}/include
    ${system_dirs}
    -c ${CMAKE_CURRENT_SOURCE_DIR}/consume/own_functor.cpp -o ${CMAKE_CURRENT_BINARY_DIR}/own_functor.clang.o)
endif()

# Fuzz targets of libFuzzer; those with AddressSanitizer alone are in tests/fuzz.
if(CCL_CLANG_16)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.fuzz.libfuzzer COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/run.sh
    $<IF:$<BOOL:${CCL_TEST_LONG}>,20,0> ${PROJECT_BINARY_DIR}/libfuzzer)
  set_tests_properties(${CCL_TEST_PREFIX}ccl.fuzz.libfuzzer PROPERTIES TIMEOUT 3600 SKIP_RETURN_CODE 77)
endif()

# The other builds of tests have little or no debugging information.
add_test(NAME ${CCL_TEST_PREFIX}ccl.consume.debug_info COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -g
  -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_BINARY_DIR}/include ${system_dirs}
  -c ${CMAKE_CURRENT_SOURCE_DIR}/consume/debug_info.cpp -o ${CMAKE_CURRENT_BINARY_DIR}/debug_info.o)

include(${PROJECT_SOURCE_DIR}/cmake/ccl_compile_fail.cmake)
ccl_add_compile_fail_tests(${CMAKE_CURRENT_SOURCE_DIR}/compile_fail)

if(CCL_TEST_LONG AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.aarch64
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/aarch64/run.sh ${PROJECT_BINARY_DIR}/aarch64)
  set_tests_properties(${CCL_TEST_PREFIX}ccl.aarch64 PROPERTIES TIMEOUT 3600 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE)
endif()

set(ways find_package)
if(CCL_TEST_LONG)  # compiles the runtime again
  list(APPEND ways add_subdirectory)
endif()
foreach(way IN LISTS ways)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.consume.${way} COMMAND ${CMAKE_COMMAND}
    -Dway=${way} -Dsource=${PROJECT_SOURCE_DIR} -Dbuild=${PROJECT_BINARY_DIR}
    -Dgenerator=${CMAKE_GENERATOR} -Dcompiler=${CMAKE_CXX_COMPILER} -Dcompiler_id=${CMAKE_CXX_COMPILER_ID}
    -Dlauncher=${CMAKE_CXX_COMPILER_LAUNCHER} -Dcuda_root=${CUDAToolkit_ROOT}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/consume/run.cmake)
  set_tests_properties(${CCL_TEST_PREFIX}ccl.consume.${way} PROPERTIES TIMEOUT 600)
endforeach()
