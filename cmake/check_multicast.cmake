# cmake -P cmake/check_multicast.cmake [-Droot=FOLDER]: NVLink multicast is state of the NVSwitches,
# which all programs of a machine share, so CCL_NVLS_ENABLE=1 alone allows it. Fails if
# - the driver's calls for it are named outside of src/gpu/multicast.hpp, or its instructions outside
#   of include/ccl/detail/base/ptx_multimem.hpp and of a test that is compiled and in no program, or
# - a source that starts NVIDIA's NCCL or NVSHMEM, which use it unless told not to, does not name the
#   variable that says so, or the function that sets it.
cmake_minimum_required(VERSION 3.25)
if(NOT root)
  get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
endif()
set(found "")

foreach(folder IN ITEMS benchmarks examples include python src tests tools)
  foreach(suffix IN ITEMS c cpp cu cuh hpp in py sh)
    list(APPEND patterns ${root}/${folder}/*.${suffix})
  endforeach()
endforeach()
file(GLOB_RECURSE sources RELATIVE ${root} ${patterns})
list(FILTER sources EXCLUDE REGEX "^tests/multicast_violations/")

set(calls "cuMulticast[A-Z]")
set(calls_in src/gpu/multicast.hpp)
set(instructions "multimem[.](ld_reduce|st|red)[.]")
set(instructions_in include/ccl/detail/base/ptx_multimem.hpp tests/detail/multicast/float8.cu)
set(starts_nccl "init_process_group\\(\"nccl|backend=\"nccl|--backend|\"ncclCommInit|LD_PRELOAD=library|open_apart\\(")
set(starts_nccl_tells "NCCL_NVLS_ENABLE|keep_multicast_off\\(")
# side_nccl.cpp and library.cpp tell it before these are called; the others name ccl's functions.
set(starts_nccl_excluded benchmarks/ccl_perf/nccl.cpp src/nccl/fallback/rank.cpp src/nccl/functions/communicators.cpp
  tests/src/nccl/api_test.cpp)
set(starts_nvshmem "nvshmemx?_init")
set(starts_nvshmem_tells "NVSHMEM_DISABLE_NVLS")
foreach(source IN LISTS sources)
  file(READ ${root}/${source} text)
  foreach(what IN ITEMS calls instructions)
    if(text MATCHES "${${what}}" AND NOT source IN_LIST ${what}_in)
      string(APPEND found "\n  ${source} has ${CMAKE_MATCH_0}, which only ${${what}_in} may have")
    endif()
  endforeach()
  foreach(start IN ITEMS starts_nccl starts_nvshmem)
    if(NOT text MATCHES "${${start}_tells}" AND NOT source IN_LIST ${start}_excluded AND text MATCHES "${${start}}")
      string(APPEND found "\n  ${source} has ${CMAKE_MATCH_0} and does not name ${${start}_tells}")
    endif()
  endforeach()
endforeach()
if(found)
  message(FATAL_ERROR "NVLink multicast without CCL_NVLS_ENABLE=1:${found}")
endif()
