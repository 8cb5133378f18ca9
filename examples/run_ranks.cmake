# cmake -Dprogram=FILE -Dranks=N -P run_ranks.cmake: runs N ranks with torchrun's variables.
cmake_minimum_required(VERSION 3.25)
if(ranks EQUAL 1)
  execute_process(COMMAND ${program} RESULT_VARIABLE results)
else()
  string(RANDOM LENGTH 4 ALPHABET 123456789 port)  # below those that the system hands out
  math(EXPR last "${ranks} - 1")
  foreach(rank RANGE ${last})
    list(APPEND commands COMMAND ${CMAKE_COMMAND} -E env RANK=${rank} WORLD_SIZE=${ranks}
      LOCAL_RANK=${rank} MASTER_ADDR=127.0.0.1 MASTER_PORT=1${port} sh -c "exec \"$0\" >&2" ${program})
  endforeach()
  # All at once, in a pipeline; they print past it, since a rank may outlive the one that would read.
  execute_process(${commands} RESULTS_VARIABLE results)
endif()
foreach(result IN LISTS results)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${program} failed: ${results}")
  endif()
endforeach()
