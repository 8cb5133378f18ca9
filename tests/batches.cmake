# ccl_batch_tests(): compiles CCL_TEST_BATCH files of a folder at once, since most of a test's compile
# time is reading headers and instantiating what others of its folder instantiate, too. Each test stays
# a program of its own: it links the object of its batch and runs only the cases of its file
# (support/main.cpp).
#
# In a batch each file is in a namespace of its own, after the includes of all. So its names do not meet
# those of others. What must be in the global namespace, or is compiled in a way of its own, is not batched.
set(alone
  "\nnamespace (ccl|std|Catch|nlohmann|fmt|cuda)" # opened again: other names within a namespace
  "template <>"                                  # specializations belong to the namespace of their template
  "extern \"C\""
  "operator (new|delete)"
  "\n#[ ]*(define|if|undef)"
  "\nint main"
  "dlfcn"                                        # the program's own symbols are looked up
  "sched_getaffinity"                            # CPU ranks: others' played GPUs would be linked in
  "proxied/end[.]hpp"                            # defines templates whose instances others only name
  "INTERNAL_CATCH|CATCH_CONFIG|REGISTER"
  "include \"support/[a-z_]+_suite")             # cases that stand in a header

function(ccl_batch_tests)
  if(CCL_TEST_BATCH LESS 2)
    return()
  endif()
  list(JOIN alone "|" alone)
  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(NOT target MATCHES "^ccl\\.test\\." OR NOT type STREQUAL EXECUTABLE)
      continue()
    endif()
    get_target_property(sources ${target} SOURCES)
    get_target_property(definitions ${target} COMPILE_DEFINITIONS)
    if(NOT sources MATCHES "^[^;$]+_test\\.cpp$" OR definitions)
      continue()
    endif()
    file(READ ${sources} text)
    if(text MATCHES "${alone}")
      continue()
    endif()
    cmake_path(GET sources PARENT_PATH folder)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    get_target_property(pch ${target} PRECOMPILE_HEADERS_REUSE_FROM)
    # Those that are compiled in the same way.
    string(MD5 key "${folder} ${libraries} ${pch}")
    if(NOT key IN_LIST keys)
      list(APPEND keys ${key})
      set(libraries_${key} ${libraries})
      set(pch_${key} ${pch})
      string(REPLACE "/" "." name_${key} "${folder}")
      if(NOT folder)
        set(name_${key} tests)
      endif()
    endif()
    list(APPEND tests_${key} ${target})
  endforeach()
  set(number 0)
  foreach(key IN LISTS keys)
    list(LENGTH tests_${key} count)
    math(EXPR batches "(${count} + ${CCL_TEST_BATCH} - 1) / ${CCL_TEST_BATCH}")
    math(EXPR each "(${count} + ${batches} - 1) / ${batches}")
    foreach(batch RANGE 1 ${batches})
      math(EXPR begin "(${batch} - 1) * ${each}")
      list(SUBLIST tests_${key} ${begin} ${each} tests)
      math(EXPR number "${number} + 1")
      ccl_add_test_batch(ccl_test_batch.${name_${key}}.${number} "${tests}" "${libraries_${key}}" "${pch_${key}}")
    endforeach()
  endforeach()
endfunction()

function(ccl_add_test_batch batch tests libraries pch)
  list(LENGTH tests count)
  if(count LESS 2)
    return()
  endif()
  set(includes)
  set(parts)
  foreach(test IN LISTS tests)
    get_target_property(source ${test} SOURCES)
    file(STRINGS ${source} lines REGEX "^#include ")
    list(APPEND includes ${lines})
    string(REGEX REPLACE "[^A-Za-z0-9]" "_" name ${source})
    string(APPEND parts "namespace ${name} {\n#include \"${source}\"\n}\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  endforeach()
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "\n" includes)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/batches/${batch}.cpp)
  file(CONFIGURE OUTPUT ${file} CONTENT
    "${includes}\n\nextern \"C\" const bool ccl_test_batch = true;\n${parts}" @ONLY)
  add_library(${batch} OBJECT ${file})
  target_link_libraries(${batch} PRIVATE ${libraries})
  target_include_directories(${batch} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${batch} PRIVATE ${test_options})
  if(pch)
    target_precompile_headers(${batch} REUSE_FROM ${pch})
  endif()
  foreach(test IN LISTS tests)
    set_target_properties(${test} PROPERTIES SOURCES $<TARGET_OBJECTS:${batch}> LINKER_LANGUAGE CXX)
  endforeach()
endfunction()
