# ccl_share_cores(), called at the end of a directory: each of its tests takes one of the cores that
# test.sh lets CTest share out. Tests that mostly wait take none, so they run in addition. Without
# --resource-spec-file for CTest it has no effect.
function(ccl_share_cores)
  set(waiting
    "comm\\.communicator_faults"
    "detail\\.runtime\\.(bootstrap_(failures|process|shrink(\\.(full|integrity))?)|on_demand)"
    "hosts\\.(attacks|kill|stop|ways)"
    "src\\.base\\.io\\.(file|os_error)"
    "src\\.bootstrap\\.shrink_rendezvous"
    "src\\.comm\\.edges\\.paths"
    "src\\.launch\\.calls"
    "src\\.nccl\\.options"
    "src\\.net\\.(auth|crypto\\.handshake|namespaces)")
  list(JOIN waiting "|" waiting)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    if(test MATCHES "ccl\\.test\\.ib\\.vm$")  # a machine with two cores
      set_tests_properties(${test} PROPERTIES RESOURCE_GROUPS cores:2)
    elseif(NOT test MATCHES "ccl\\.test\\.(${waiting})$")
      set_tests_properties(${test} PROPERTIES RESOURCE_GROUPS cores:1)
    endif()
  endforeach()
endfunction()
