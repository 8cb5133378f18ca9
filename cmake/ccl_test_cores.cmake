# ccl_share_cores(), called at the end of a directory: each of its tests takes one of the cores that
# test.sh lets CTest share out. Tests that mostly wait take none, so they run in addition. Without
# --resource-spec-file for CTest it has no effect.
function(ccl_share_cores)
  set(waiting "detail\\.runtime\\.(bootstrap_(failures|process|shrink)|on_demand)|src\\.comm\\.paths|comm\\.late_rank|hosts\\.(kill|stop)|src\\.net\\.(auth|namespaces)")
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    if(NOT test MATCHES "ccl\\.test\\.(${waiting})$")
      set_tests_properties(${test} PROPERTIES RESOURCE_GROUPS cores:1)
    endif()
  endforeach()
endfunction()
