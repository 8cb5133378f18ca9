# Install rules: headers, runtime, and a package that find_package(ccl) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(ccl_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ccl)
# A static runtime passes its private libraries on to the program. CCL_CONFIG_DEPENDENCIES is set
# where such a library is added.
string(JOIN "\n" CCL_CONFIG_DEPENDENCIES ${CCL_CONFIG_DEPENDENCIES})
configure_package_config_file(cmake/cclConfig.cmake.in ${PROJECT_BINARY_DIR}/cclConfig.cmake
  INSTALL_DESTINATION ${ccl_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cclConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)  # before 1.0 a minor release may break
install(TARGETS ccl ccl_runtime EXPORT cclTargets)
install(EXPORT cclTargets NAMESPACE ccl:: DESTINATION ${ccl_package_dir})
install(FILES ${PROJECT_BINARY_DIR}/cclConfig.cmake ${PROJECT_BINARY_DIR}/cclConfigVersion.cmake
              cmake/ccl_cuda_headers.cmake DESTINATION ${ccl_package_dir})
install(DIRECTORY include/ccl ${PROJECT_BINARY_DIR}/include/ccl
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
if(NOT DEFINED SKBUILD)  # a wheel has it beside its metadata
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
