# The documentation: target ccl.docs builds the site into <build>/site, with Doxygen's pages in
# site/api, and needs no network. cmake/setup.sh --docs installs what it takes. The tests ccl.docs.*
# check the pages; see CONTRIBUTING.md.
option(CCL_REQUIRE_DOCS "Tests of the documentation fail where a tool is missing, instead of being skipped" OFF)
find_program(CCL_PYTHON python3)
if(CCL_PYTHON)
  add_custom_target(ccl.docs
    COMMAND ${CCL_PYTHON} ${PROJECT_SOURCE_DIR}/tools/docs/build_site.py --build ${PROJECT_BINARY_DIR}
      --version-header ${PROJECT_BINARY_DIR}/include/ccl/version.hpp
    COMMENT "Building the documentation site" USES_TERMINAL VERBATIM)
else()
  add_custom_target(ccl.docs
    COMMAND ${CMAKE_COMMAND} -E echo "ccl.docs needs python3, mkdocs, mkdocs-material and doxygen: run cmake/setup.sh --docs"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
endif()
if(CCL_BUILD_TESTS AND NOT CCL_SANITIZE)
  add_subdirectory(tests/docs)
endif()
