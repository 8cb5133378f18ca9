# Every header must compile alone: .hpp as C++, .cuh as CUDA. With CUDA enabled, each .hpp must also
# compile as CUDA. These checks are batched, 64 headers in a file, because nvcc reads each file
# several times and the C++ checks find missing includes. Builds that only add sanitizers or a
# filter skip the C++ checks. Headers in detail/ are checked with CCL_TEST_LONG alone: programs name
# the others only, which include these. A header that another one includes before all else compiles
# alone where that one does, so it has no check of its own.

# ccl_included_first(RESULT HEADER): returns the header of ccl that stands before all else in HEADER.
function(ccl_included_first result header)
  file(STRINGS ${PROJECT_SOURCE_DIR}/include/${header} directives REGEX "^#" LIMIT_COUNT 2)
  set(${result} "" PARENT_SCOPE)
  if(directives MATCHES "^#pragma once;#include <(ccl/[a-z0-9_/]+\\.hpp)>")
    if(EXISTS ${PROJECT_SOURCE_DIR}/include/${CMAKE_MATCH_1})  # version.hpp does not
      set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(ccl_add_header_checks)
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR}/include CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/include/*.hpp ${PROJECT_SOURCE_DIR}/include/*.cuh)
  if(NOT CCL_TEST_LONG)
    list(FILTER headers EXCLUDE REGEX "^ccl/detail/")
  endif()
  set(compiled "")  # as the first of others
  foreach(header IN LISTS headers)
    if(header MATCHES "cuh$")  # by nvcc alone
      continue()
    endif()
    ccl_included_first(first ${header})
    while(first AND NOT first IN_LIST compiled)
      list(APPEND compiled ${first})
      ccl_included_first(first ${first})
    endwhile()
  endforeach()
  list(APPEND headers ccl/version.hpp)
  set(stubs ${PROJECT_BINARY_DIR}/headers)
  set(batched 0)
  foreach(header IN LISTS headers)
    set(text "#include <${header}>\n#include <${header}>\n")
    if(header MATCHES "cuh$")
      file(CONFIGURE OUTPUT ${stubs}/${header}.cu CONTENT "${text}")
      list(APPEND stubs_cu ${stubs}/${header}.cu)
      continue()
    endif()
    file(CONFIGURE OUTPUT ${stubs}/${header}.cpp CONTENT "${text}")
    if(NOT header IN_LIST compiled)
      list(APPEND stubs_cpp ${stubs}/${header}.cpp)
    endif()
    math(EXPR batch "${batched} / 64")
    math(EXPR batched "${batched} + 1")
    string(APPEND batch_${batch} "${text}")
  endforeach()
  if(NOT CCL_SANITIZE AND NOT CCL_TEST_FILTER)
    add_library(ccl.headers OBJECT ${stubs_cpp})
    set_target_properties(ccl.headers PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(ccl.headers PRIVATE ccl::ccl ccl_warnings)
  endif()
  if(CCL_ENABLE_CUDA)
    foreach(i RANGE ${batch})
      file(CONFIGURE OUTPUT ${stubs}/batch_${i}.cu CONTENT "${batch_${i}}")
      list(APPEND stubs_cu ${stubs}/batch_${i}.cu)
    endforeach()
    add_library(ccl.headers.cuda OBJECT ${stubs_cu})
    set_target_properties(ccl.headers.cuda PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(ccl.headers.cuda PRIVATE ccl::ccl)
  endif()
endfunction()
