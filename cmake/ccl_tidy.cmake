# `ninja tidy`: clang-tidy over the runtime and, through their tests, the headers. It is slow, and
# is run by hand.
find_program(CCL_RUN_CLANG_TIDY NAMES run-clang-tidy run-clang-tidy-14)
if(CCL_RUN_CLANG_TIDY)
  add_custom_target(tidy
    COMMAND ${CCL_RUN_CLANG_TIDY} -quiet -p ${PROJECT_BINARY_DIR} "${PROJECT_SOURCE_DIR}/src/.*cpp"
            "${PROJECT_BINARY_DIR}/headers/.*cpp"
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM USES_TERMINAL)
endif()
