# Sets ccl_is_there if the project has ccl already: from add_subdirectory of another dependency, or
# from find_package. Two copies in one project would have two targets of one name, and their ranks
# could not connect. Stops if the other copy has another version, or is something else.
set(ccl_is_there FALSE)
if(TARGET ccl::ccl)
  get_target_property(ccl_of ccl::ccl CCL_VERSION)
  get_target_property(ccl_from ccl::ccl CCL_FROM)
  if(NOT ccl_of)  # a release that did not say so
    set(ccl_of "of an earlier version")
    set(ccl_from "a package or sources")
  endif()
  if(NOT ccl_of STREQUAL PROJECT_VERSION)
    message(FATAL_ERROR "The project has ccl ${ccl_of} already, from ${ccl_from}, and ${PROJECT_SOURCE_DIR} is ccl "
      "${PROJECT_VERSION}. A program has one copy of ccl: give both dependencies the same one.")
  endif()
  message(STATUS "ccl ${PROJECT_VERSION} of ${PROJECT_SOURCE_DIR} is left out: the project has it from ${ccl_from}")
  set(ccl_is_there TRUE)
  return()
endif()
foreach(ccl_name IN ITEMS ccl ccl_runtime)
  if(TARGET ${ccl_name})
    get_target_property(ccl_from ${ccl_name} SOURCE_DIR)
    message(FATAL_ERROR "The project has a target ${ccl_name} already, from ${ccl_from}, which is not this library "
      "(ccl::ccl does not exist). Rename it, or take ccl in by find_package(ccl), whose targets are ccl::ccl and "
      "ccl::runtime alone.")
  endif()
endforeach()
