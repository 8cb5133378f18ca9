# Defines CLI11::CLI11 and CLI11_FOUND. Without a CMake package it uses the headers in
# CCL_CLI11_INCLUDE_DIR.
find_package(CLI11 QUIET)
if(NOT CLI11_FOUND)
  find_path(CCL_CLI11_INCLUDE_DIR CLI/CLI.hpp DOC "Folder of CLI/CLI.hpp")
  if(CCL_CLI11_INCLUDE_DIR)
    set(CLI11_FOUND TRUE)
    if(NOT TARGET CLI11::CLI11)
      add_library(CLI11::CLI11 INTERFACE IMPORTED GLOBAL)
      target_include_directories(CLI11::CLI11 INTERFACE ${CCL_CLI11_INCLUDE_DIR})
    endif()
  endif()
endif()
