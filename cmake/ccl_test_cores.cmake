# ccl_share_cores(), called at the end of a directory: each of its tests takes one of the cores that
# test.sh lets CTest share out. Tests that mostly wait take none, so they run in addition. Without
# --resource-spec-file for CTest it has no effect.
# CTest starts tests in the order of their COST. The longest come first, so that at the end no test
# runs alone while other cores have nothing to do.
function(ccl_share_cores)
  set(longest
    "ccl\\.test\\.ib\\.(faults|vm)"
    "ccl\\.python\\.(torch|wheel)"
    "ccl\\.test\\.(hosts\\.attacks|played\\.room(_simulator)?)"
    "ccl\\.(docs\\.code|test\\.(collective\\.collective_ll|comm\\.watchdog(_quiet)?))"
    "ccl\\.(consume\\.[a-z_]+|docs\\.words|format)"
    "ccl\\.test\\.(comm\\.(communicator_faults|lost_process)|detail\\.runtime\\.bootstrap_process)"
    "ccl\\.test\\.(element\\.types_move|src\\.(observe\\.health\\.limits|transport\\.ib\\.faults))")
  set(waiting
    "comm\\.(communicator_faults|lost_process|watchdog(_quiet)?)"
    "detail\\.runtime\\.(bootstrap_(failures|process|shrink(\\.(full|integrity))?)|on_demand)"
    "hosts\\.(attacks|kill|stop|ways)"
    "src\\.base\\.io\\.(file|os_error)"
    "src\\.bootstrap\\.shrink_rendezvous"
    "src\\.comm\\.edges\\.paths"
    "src\\.launch\\.calls"
    "src\\.nccl\\.options"
    "src\\.net\\.(auth(_limits)?|crypto\\.handshake|namespaces)")
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    set(cost 1000)
    set(cores 1)
    foreach(regex IN LISTS longest)
      if(test MATCHES "${regex}$")
        set_tests_properties(${test} PROPERTIES COST ${cost})
      endif()
      math(EXPR cost "${cost} - 100")
    endforeach()
    foreach(regex IN LISTS waiting)  # one by one: CMake allows ten brackets in an expression
      if(test MATCHES "ccl\\.test\\.${regex}$")
        set(cores 0)
      endif()
    endforeach()
    if(test MATCHES "ccl\\.perf\\.tune\\.write$")  # CTest starts it first, for those that need it
      set(cores 0)
    elseif(test MATCHES "ccl\\.test\\.ib\\.(faults|vm)$")  # a machine with two cores
      set(cores 2)
    endif()
    if(cores)
      set_tests_properties(${test} PROPERTIES RESOURCE_GROUPS cores:${cores})
    endif()
  endforeach()
endfunction()
