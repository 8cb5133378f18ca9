# cmake -P cmake/check_results.cmake: fails if a function of a public header returns a Result and is
# not [[nodiscard]], so that a program could lose an error without a warning.
cmake_minimum_required(VERSION 3.25)
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
file(GLOB_RECURSE headers RELATIVE ${root} ${root}/include/ccl/*.hpp ${root}/include/ccl/*.cuh)
list(FILTER headers EXCLUDE REGEX "/detail/")
set(found "")
foreach(header IN LISTS headers)
  file(STRINGS ${root}/${header} lines
    REGEX "^ *(template <.*> +)?((static|inline|constexpr|virtual|CCL_HD) +)*Result<.*> ([a-z_]+|operator\\(\\))\\(")
  foreach(line IN LISTS lines)
    string(STRIP "${line}" line)
    string(APPEND found "\n${header}: ${line}")
  endforeach()
endforeach()
if(found)
  message(FATAL_ERROR "these return a Result and are not [[nodiscard]]:${found}")
endif()
