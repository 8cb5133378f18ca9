# ccl::cuda_headers: the CUDA Toolkit's headers, CCCL among them, for C++; nvcc knows its own.
# Made anew where ccl is built and where it is found, so that no path of one machine is installed.
# nvcc and a GPU are not needed.

# Where 3.25 is the minimum, the module of CMake 3.25.1 (Debian 12) stops at CUDA 13: it looks for
# the nvToolsExt that CUDA no longer has.
set(ccl_minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${ccl_minimum})
unset(ccl_minimum)
if(NOT TARGET ccl::cuda_headers)
  if(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
    add_library(ccl::cuda_headers INTERFACE IMPORTED GLOBAL)
  else()
    add_library(ccl::cuda_headers INTERFACE IMPORTED)
  endif()
  foreach(ccl_dir IN LISTS CUDAToolkit_INCLUDE_DIRS)
    target_include_directories(ccl::cuda_headers SYSTEM INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${ccl_dir}>)
    if(EXISTS ${ccl_dir}/cccl)  # where the toolkit keeps it since 13.0
      target_include_directories(ccl::cuda_headers SYSTEM INTERFACE
        $<$<COMPILE_LANGUAGE:CXX>:${ccl_dir}/cccl>)
    endif()
  endforeach()
  unset(ccl_dir)
endif()
