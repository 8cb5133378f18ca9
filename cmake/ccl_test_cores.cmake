# ccl_share_cores(), called at the end of a directory: each of its tests takes one of the cores that
# test.sh lets CTest share out. Tests that mostly wait take none, so they run in addition. Without
# --resource-spec-file for CTest it has no effect.
# CTest starts tests in the order of their COST. The longest come first, so that at the end no test
# runs alone while other cores have nothing to do.
function(ccl_share_cores)
  set(longest
    "ccl\\.test\\.ib\\.(faults|vm)"
    "ccl\\.python\\.(torch|wheel)"
    "ccl\\.test\\.(hosts\\.attacks|played\\.room(_(many|simulator))?)"
    "ccl\\.(docs\\.code(\\.gpu)?|test\\.(collective\\.collective_ll|comm\\.watchdog(_quiet)?))"
    "ccl\\.(consume\\.[a-z_]+|docs\\.words|format|test\\.detail\\.choose\\.kernels\\.gpu|toolkit_12_[48])"
    "ccl\\.test\\.(comm\\.(communicator_faults|lost_process)|detail\\.runtime\\.bootstrap_process)"
    "ccl\\.test\\.(element\\.types_move|src\\.(observe\\.health\\.limits|transport\\.ib\\.faults))")
  # Processor time of about a third of the wall time or less, as measured in each build. Under
  # ThreadSanitizer transport.ib.faults computes.
  set(waiting
    "collective\\.collective_ll"
    "comm\\.(communicator(_faults)?|late_rank|lost_process|report|watchdog(_quiet)?)"
    "detail\\.runtime\\.(bootstrap(_failures|_process|_tree)?|on_demand)"
    "detail\\.runtime\\.bootstrap(_shrink)?(\\.(full|integrity))?"
    "hosts\\.(attacks|collnet|kill|shrink|stop|ways)"
    "src\\.base\\.(fork_mutex|io\\.(file|os_error))"
    "src\\.bootstrap\\.(decline|launch\\.pmix|peer_messages|shrink_(agreement|rendezvous)|status_exchange)"
    "src\\.comm\\.edges\\.paths"
    "src\\.connect\\.(idle_(operations|pairs)|on_demand|registry\\.handle_registry)"
    "src\\.launch\\.calls"
    "src\\.nccl\\.(family|options)"
    "src\\.net\\.(auth(_limits)?|crypto\\.handshake|namespaces)"
    "src\\.observe\\.(departure(_exits)?|failure_watch|health\\.(limits|service))"
    "src\\.transport\\.ib\\.departures"
    "transport\\.(collnet_(auto|faults)|p2p_edges|plugin_(failures|hangs(_in_calls)?)|socket(\\.(full|integrity))?)")
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
    if(test MATCHES "ccl\\.test\\.src\\.transport\\.ib\\.faults$" AND NOT CCL_SANITIZE MATCHES thread)
      set(cores 0)
    elseif(test MATCHES "ccl\\.perf\\.tune\\.write$")  # CTest starts it first, for those that need it
      set(cores 0)
    elseif(test MATCHES "ccl\\.test\\.ib\\.(faults|vm)$")  # a machine with two cores
      set(cores 2)
    endif()
    if(cores)
      set_tests_properties(${test} PROPERTIES RESOURCE_GROUPS cores:${cores})
    endif()
  endforeach()
endfunction()
