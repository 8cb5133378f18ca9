# ccl::cuda_headers: headers of the CUDA Toolkit, including CCCL, for C++. nvcc has its own. The
# target is created both where ccl is built and where it is found, so that no path of one machine is
# installed. nvcc and a GPU are not needed.

# With 3.25 as the minimum, the module of CMake 3.25.1 (Debian 12) fails with CUDA 13, because it
# searches nvToolsExt, which CUDA 13 does not have.
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
    if(EXISTS ${ccl_dir}/cccl)  # its folder in the toolkit since 13.0
      target_include_directories(ccl::cuda_headers SYSTEM INTERFACE
        $<$<COMPILE_LANGUAGE:CXX>:${ccl_dir}/cccl>)
    endif()
  endforeach()
  unset(ccl_dir)
endif()
