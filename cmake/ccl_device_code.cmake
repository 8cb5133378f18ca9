# ccl_add_device_code(TARGET FILE NAME RESULT): if FILE is CUDA, and CCL_TEST_CUDA_WHOLE is set and
# does not match NAME, creates TARGET, which only compiles the device code of FILE, to PTX. nvcc takes
# a third of the time for that. It still reads the host code, but does not generate it. Returns in
# RESULT whether it has created TARGET.
function(ccl_add_device_code target file name result)
  set(${result} FALSE PARENT_SCOPE)
  if(NOT CCL_TEST_CUDA_WHOLE OR NOT file MATCHES "cu$" OR name MATCHES "${CCL_TEST_CUDA_WHOLE}")
    return()
  endif()
  add_library(${target} OBJECT ${file})
  set_target_properties(${target} PROPERTIES CUDA_PTX_COMPILATION ON)
  set(${result} TRUE PARENT_SCOPE)
endfunction()
