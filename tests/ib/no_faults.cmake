# cmake -Dnm=NM -Dgrep=GREP -Dobjects=FILE -Dcontrol=PROGRAM -P no_faults.cmake: fails if an object
# of the runtime contains a part of the tests' fault layer. It also fails if an object that moves
# steps reads the switch of that layer. FILE names one object on each line. PROGRAM contains the
# layer, which must be found there.
cmake_minimum_required(VERSION 3.25)
set(layer "ccl::test::|FakeVerbs|Faults")
set(switch "ccl::detail::(use_verbs|verbs_are_replaced|verbs)\\(|::replaced")
set(movers ib/end ib/gpu/flush ib/paths ib/receiver ib/sender ib/slot_table ib/task ib/verbs/queue_pair
  proxied/control_socket)

# Matching symbols, one line each, with the name of the file.
function(matching regex result)
  execute_process(COMMAND ${nm} -A -C ${ARGN} COMMAND ${grep} -E ${regex}
    OUTPUT_VARIABLE lines ERROR_VARIABLE problem RESULTS_VARIABLE codes)
  list(GET codes 0 nm_code)
  list(GET codes 1 grep_code)
  if(nm_code OR grep_code GREATER 1)
    message(FATAL_ERROR "cannot read symbols (${problem})")
  endif()
  set(${result} "${lines}" PARENT_SCOPE)
endfunction()

matching("${layer}" lines ${control})
if(NOT lines)
  message(FATAL_ERROR "${control} shows nothing of the fault layer: this search would find nothing anywhere")
endif()
file(STRINGS ${objects} files)
matching("${layer}" lines ${files})
if(lines)
  message(SEND_ERROR "the runtime holds parts of the fault layer:\n${lines}")
endif()

foreach(name IN LISTS movers)
  set(found ${files})
  list(FILTER found INCLUDE REGEX "/src/transport/${name}\\.cpp\\.o$")
  if(NOT found)
    message(FATAL_ERROR "the runtime has no object of transport/${name}.cpp; which objects move steps?")
  endif()
  list(APPEND of_movers ${found})
endforeach()
matching("${switch}" lines ${of_movers})
if(lines)
  message(SEND_ERROR "what moves steps looks at the switch of the fault layer:\n${lines}")
endif()
set(of_device ${files})
list(FILTER of_device INCLUDE REGEX "/src/transport/ib/verbs/device\\.cpp\\.o$")
matching("${switch}" lines ${of_device})
if(NOT lines)
  message(FATAL_ERROR "device.cpp shows no use of the switch: this search would find none anywhere")
endif()
