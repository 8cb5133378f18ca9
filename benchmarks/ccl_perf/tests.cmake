# Tests of ccl_perf's command line.

# Every composition at small sizes, with every element checked, with ranks as processes and as
# threads.
foreach(op IN LISTS CCL_PERF_OPS)
  set(in_place --inplace)
  if(op MATCHES "^(AllToAll|AllToAllV|SendRecv)$")
    set(in_place)
  endif()
  set(arguments --device cpu -b 8 -e 64K -f 90 -n 2 --rounds 1 --algo all --proto all)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.${op}
    COMMAND ccl_perf ${op} --ranks 3 ${arguments} -d all --json perf.${op}.json)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.${op}.threads
    COMMAND ccl_perf ${op} --ranks 4 --threads ${arguments} ${in_place} --root 2)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.${op}.socket
    COMMAND ccl_perf ${op} --ranks 2 --transport socket ${arguments})
  foreach(launch IN ITEMS procs threads)
    set(as ${in_place})
    if(launch STREQUAL procs)
      set(as)
    endif()
    add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.${op}.emulated.${launch}
      COMMAND ccl_perf_emulated ${op} --device cuda --${launch} -b 8 -e 64K -f 90 -d all --graph 3
        --rounds 2 ${as})
    set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.${op}.emulated.${launch} PROPERTIES
      ENVIRONMENT PERF_EMULATED_GPUS=3 TIMEOUT 300)
  endforeach()
endforeach()

if(CCL_ENABLE_CUDA)  # label gpu: on all GPUs of the machine
  foreach(op IN LISTS CCL_PERF_OPS)
    foreach(launch IN ITEMS procs threads)
      set(test ${CCL_TEST_PREFIX}ccl.perf.${op}.gpu.${launch})
      add_test(NAME ${test} COMMAND ccl_perf ${op} --device cuda --${launch} -b 8 -e 4M -f 90 -d all
        --graph 5 --rounds 2 --algo all --proto all)
      set_tests_properties(${test} PROPERTIES LABELS gpu RESOURCE_LOCK gpu TIMEOUT 300
        SKIP_REGULAR_EXPRESSION "there is no GPU")
    endforeach()
  endforeach()
  # GPUs that address each other's memory have the order of ranks, which comes first in the list.
  set(test ${CCL_TEST_PREFIX}ccl.perf.deterministic.gpu)
  add_test(NAME ${test} COMMAND ccl_perf all_reduce --device cuda --deterministic -b 4096 -e 4096 --rounds 1)
  set_tests_properties(${test} PROPERTIES LABELS gpu RESOURCE_LOCK gpu TIMEOUT 60
    SKIP_REGULAR_EXPRESSION "there is no GPU;1 ranks" PASS_REGULAR_EXPRESSION " OneShot/LL128.*wrong elements: 0")
endif()
# Comparison with a rival that works, and with one that fails in one mode.
set(well "sum +-1 .* 0  [A-Z][a-z]+/[A-Z][a-zA-Z0-9]* .* (plain|registered|windows|windows-32) .*[0-9]\n")
set(behaviors well wrong fail crash hang)
set(expected_wrong "NCCL windows-32: [0-9]+ elements of 4096 B were wrong")
set(expected_fail "windows-32: all_reduce failed .fake error: asked for by FAKE_NCCL")
set(expected_crash "windows-32: its process ended by signal 6")
set(expected_hang "windows-32: no answer within 2 s from rank 0, 1")
foreach(behavior IN LISTS behaviors)
  foreach(launch IN ITEMS procs threads)
    set(test ${CCL_TEST_PREFIX}ccl.perf.compare.${behavior}.${launch})
    add_test(NAME ${test} COMMAND ccl_perf_emulated all_reduce --${launch} --compare nccl
      --nccl-library $<TARGET_FILE:ccl_perf_fake_nccl> -b 4096 -e 4096 --graph 3 --rounds 2 --timeout 1)
    set_tests_properties(${test} PROPERTIES TIMEOUT 120
      ENVIRONMENT "PERF_EMULATED_GPUS=2;FAKE_NCCL=${behavior}"
      PASS_REGULAR_EXPRESSION "${expected_${behavior}}.*${well}")
  endforeach()
endforeach()
# Where the time of a message of several slices goes, and that other algorithms have no phases.
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.explain COMMAND ccl_perf all_reduce --device cpu --ranks 2 -b 2M -e 2M
  --algo Ring --proto Simple -n 2 --rounds 1 --explain)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.explain PROPERTIES PASS_REGULAR_EXPRESSION
  "launch [0-9.]+ us .*first hop .*times a message.*steady state .* of the link's [0-9.]+ GB/s.*tail")
# The same on GPUs, with calls in a graph and without, by a traced form; what has none is named.
set(line "wait for the launch before [0-9.]+ us .*first hop .*times a message's.*steady state .*tail.*wrong elements: 0")
set(explain_procs --procs --graph 2 --proto Simple --channels 1 --slot-bytes 65536)
set(explain_threads --threads --proto Simple --channels 1 --slot-bytes 65536)
set(explain_clock --threads --proto Simple)
set(explain_lacks --threads --proto LL)
set(explain_none --threads --proto Simple)
set(explain_recorder --threads --proto Simple)
set(explain_failed --threads --proto Simple)
set(explain_alone --ranks 1 --proto Simple)
set(says_explain_procs "with plain launches: launch [0-9.]+ us .*${line}")
set(says_explain_threads "\n#  +launch [0-9.]+ us .*steady state [^,]* of the link's [0-9.]+ GB/s.*tail")
set(says_explain_clock "\n#  +launch 5[0-9][0-9][0-9][0-9][0-9][0-9][.].*${line}")
set(says_explain_lacks "has no traced form of all_reduce/Ring/LL [(]it has those of Ring[)]; .*-DCCL_PERF_TRACED=all.*elements: 0")
set(says_explain_none "ccl_perf: --explain needs the traced forms .*configure with -DCCL_PERF_TRACED=all, or add --device cpu")
set(says_explain_recorder "holds the phases of [0-9] of 15 calls of Ring/Simple; set CCL_FLIGHT_RECORDER_SIZE=256.*elements: 0")
set(says_explain_alone "one rank alone gets no data from others; --explain needs --ranks 2 or more.*elements: 0")
set(says_explain_failed "the emulated clock does not answer.*\n +2097152 .* 0  Ring/Simple")
set(env_failed PERF_EMULATED_CLOCK_US=never)
set(env_clock PERF_EMULATED_CLOCK_US=5000000)  # 5 s, where a launch takes less than 1 s
set(env_none PERF_EMULATED_TRACED=0)
set(env_recorder CCL_FLIGHT_RECORDER_SIZE=4)
foreach(case IN ITEMS procs threads clock lacks none recorder failed alone)
  set(test ${CCL_TEST_PREFIX}ccl.perf.explain.emulated.${case})
  add_test(NAME ${test} COMMAND ccl_perf_emulated all_reduce --device cuda -b 2M -e 2M -n 2 --rounds 1
    --algo Ring ${explain_${case}} --explain)
  set_tests_properties(${test} PROPERTIES TIMEOUT 120 ENVIRONMENT "PERF_EMULATED_GPUS=2;${env_${case}}"
    PASS_REGULAR_EXPRESSION "${says_explain_${case}}")
endforeach()
# A communicator can read the table that --tune writes.
set(table ${CMAKE_CURRENT_BINARY_DIR}/tuned.json)
set(test ${CCL_TEST_PREFIX}ccl.perf.tune)
add_test(NAME ${test}.write COMMAND ccl_perf all_reduce --device cpu --ranks 2 -b 64 -e 4096 -f 64
  -n 2 --rounds 1 --tune ${table})
add_test(NAME ${test}.look COMMAND ${CMAKE_COMMAND} -E cat ${table})
add_test(NAME ${test}.read COMMAND ccl_perf all_reduce --device cpu --ranks 2 -b 64 -e 4096 -f 8 -n 2
  --rounds 1)
set_tests_properties(${test}.write PROPERTIES FIXTURES_SETUP perf_table)
set_tests_properties(${test}.look PROPERTIES FIXTURES_REQUIRED perf_table PASS_REGULAR_EXPRESSION
  "\"op\": \"all_reduce\",.*\"ranks\": 2,.*\"path\": \"shm\",.*\"Ring/Simple\": [0-9]")
set_tests_properties(${test}.read PROPERTIES FIXTURES_REQUIRED perf_table
  ENVIRONMENT CCL_TUNE_FILE=${table})
# Sizes with equal element counts are measured once.
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.sizes COMMAND ccl_perf all_to_all --device cpu --ranks 3 -b 8
  -e 32 -n 2 --rounds 1)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.sizes PROPERTIES TIMEOUT 60
  PASS_REGULAR_EXPRESSION "\n +12 +1 .*\n +24 +2 .*wrong elements: 0"
  FAIL_REGULAR_EXPRESSION "\n +12 +1 .*\n +12 +1 ")
# An existing file that is not a table is refused before any measurement, and is not changed.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/no_table.json "{\"format\": \"anoth")
add_test(NAME ${test}.damaged COMMAND ccl_perf all_reduce --device cpu --ranks 2 -b 64 -e 64
  --tune ${CMAKE_CURRENT_BINARY_DIR}/no_table.json)
set_tests_properties(${test}.damaged PROPERTIES FAIL_REGULAR_EXPRESSION "Ring/Simple" TIMEOUT 60
  PASS_REGULAR_EXPRESSION "ccl_perf: --tune cannot be .*it is no JSON object.*name another file")
add_test(NAME ${test}.all COMMAND ccl_perf all_reduce --ranks 2 --algo Ring --tune ${table})
set_tests_properties(${test}.all PROPERTIES
  PASS_REGULAR_EXPRESSION "--tune measures all compositions; leave --algo and --proto out")
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.ctas COMMAND ccl_perf_emulated all_reduce --ctas 4,all -b 4096
  -e 4096 --graph 3 --rounds 2)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.ctas PROPERTIES ENVIRONMENT PERF_EMULATED_GPUS=2
  PASS_REGULAR_EXPRESSION "at most 4 blocks.*no limit on blocks.*wrong elements: 0")
# Compositions that need equally many ranks on every host are skipped otherwise.
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.uneven COMMAND ccl_perf reduce_scatter --device cpu --ranks 3
  --hosts 2 --algo all --proto all -b 8 -e 4096 -f 90 -n 2 --rounds 1)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.uneven PROPERTIES TIMEOUT 120
  PASS_REGULAR_EXPRESSION "equally many ranks on every host.*Pat/LL128.*wrong elements: 0 [(]OK[)]")
# `Auto` takes a ring for 4 MiB, whose sums have another order at another size.
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.deterministic COMMAND ccl_perf all_reduce --device cpu --ranks 4
  --deterministic -b 8 -e 4M -f 524288 -n 2 --rounds 1)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.deterministic PROPERTIES TIMEOUT 60
  PASS_REGULAR_EXPRESSION "4194304 .*OneTree.*wrong elements: 0 [(]OK[)]" FAIL_REGULAR_EXPRESSION "Ring/")
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.misuse COMMAND ccl_perf no_such_collective --ranks 2)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.misuse PROPERTIES
  PASS_REGULAR_EXPRESSION "there is no collective \"no_such_collective\"; there are: all_gather")
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.misuse.size COMMAND ccl_perf -b 1e12G -e 1e12G --ranks 2)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.misuse.size PROPERTIES TIMEOUT 30
  PASS_REGULAR_EXPRESSION "-b cannot be \"1e12G\" [(]it is no size that memory holds[)]")
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.misuse.ranks COMMAND ccl_perf --ranks 100000)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.misuse.ranks PROPERTIES TIMEOUT 30
  PASS_REGULAR_EXPRESSION "100000 not in range .?1")
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.misuse.calls COMMAND ccl_perf -n -1 --ranks 2)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.misuse.calls PROPERTIES TIMEOUT 30
  PASS_REGULAR_EXPRESSION "-1 not in range .?0[^0-9]+1048576")
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.misuse.memory COMMAND ccl_perf --device cpu -b 500000G -e 500000G
  --ranks 2)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.misuse.memory PROPERTIES TIMEOUT 30
  PASS_REGULAR_EXPRESSION "out_of_memory: rank [01] has no memory for two buffers of 536870912000000 bytes")
# Options without an effect are refused.
set(unused_hosts --hosts 3 --ranks 2)
set(unused_threads --hosts 2 --ranks 2 --threads)
set(unused_root -r 2 --ranks 2)
set(unused_check -c 7 --ranks 2)
set(unused_windows --windows --ranks 2 --device cpu)
set(unused_nccl --nccl-algo ring --ranks 2)
set(unused_inplace all_to_all --inplace --device cpu --ranks 2)
set(says_hosts "--hosts 3 is more than there are ranks [(]2[)]")
set(says_threads "--hosts needs ranks that are processes")
set(says_root "-r 2 is no rank")
set(says_check "7 not in range .?0")
set(says_windows "--windows needs GPUs")
set(says_nccl "--nccl-algo and --nccl-proto need --compare nccl")
set(says_inplace "all_to_all does not run in place; --inplace is for all_gather, all_reduce, broadcast, ")
foreach(misuse IN ITEMS hosts threads root check windows nccl inplace)
  set(test ${CCL_TEST_PREFIX}ccl.perf.misuse.${misuse})
  add_test(NAME ${test} COMMAND ccl_perf ${unused_${misuse}})
  set_tests_properties(${test} PROPERTIES TIMEOUT 30 PASS_REGULAR_EXPRESSION "${says_${misuse}}"
    FAIL_REGULAR_EXPRESSION "(all_reduce|all_to_all), [0-9]")
endforeach()
# The wait for a launcher's rank that ends before it connects has a limit. The output of the other
# rank goes to a file, because mpiexec can lose the last lines of a job that it ends.
if(MPI_CXX_FOUND)
  set(test ${CCL_TEST_PREFIX}ccl.perf.launcher.ended)
  add_test(NAME ${test} COMMAND sh -c
    "rm -f said_by_survivor; \"$@\"; cat said_by_survivor" sh
    ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe -n 2 sh -c
    "test $OMPI_COMM_WORLD_RANK = 1 || exec \"$@\" > said_by_survivor 2>&1" sh
    $<TARGET_FILE:ccl_perf> -b 8 -e 8)
  set_tests_properties(${test} PROPERTIES TIMEOUT 60 ENVIRONMENT CCL_INIT_TIMEOUT=2
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
    PASS_REGULAR_EXPRESSION "PMIx_Fence has not returned within 2 s"
    SKIP_REGULAR_EXPRESSION "there is no PMIx")
endif()
# A full disk is an error, and closed streams are not mistaken for pipes.
set(one_size --device cpu --ranks 2 -b 8 -e 8 -n 2 --rounds 1)
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.stdout.full COMMAND sh -c
  "\"$@\" > /dev/full; test $? = 1" sh $<TARGET_FILE:ccl_perf> ${one_size})
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.stdout.closed COMMAND sh -c
  "\"$@\" <&- >&- && \"$@\" <&- >&- 2>&-" sh $<TARGET_FILE:ccl_perf> ${one_size})
foreach(stdout IN ITEMS full closed)
  set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.stdout.${stdout} PROPERTIES TIMEOUT 60)
endforeach()
# A quarter of the size of two ranks' uneven messages goes to the other rank.
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.uneven_bus COMMAND sh -c
  "\"$@\" | awk '$1 == 4194304 { n = $7 / $8 } END { exit !(n > 3.9 && n < 4.1) }'" sh
  $<TARGET_FILE:ccl_perf> all_to_all_v --device cpu --ranks 2 -b 4M -e 4M -n 2 --rounds 1)
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.uneven_bus PROPERTIES TIMEOUT 60)
# A child of the process from before is not a rank, however it ends.
add_test(NAME ${CCL_TEST_PREFIX}ccl.perf.other_child COMMAND sh -c
  "sh -c 'exit 7' & exec \"$@\"" sh $<TARGET_FILE:ccl_perf> ${one_size})
set_tests_properties(${CCL_TEST_PREFIX}ccl.perf.other_child PROPERTIES TIMEOUT 60)
foreach(option IN ITEMS json tune)  # checked before any measurement
  set(test ${CCL_TEST_PREFIX}ccl.perf.misuse.${option})
  add_test(NAME ${test} COMMAND ccl_perf --ranks 2 --${option} no/such/directory/file.json)
  set_tests_properties(${test} PROPERTIES TIMEOUT 30 FAIL_REGULAR_EXPRESSION "all_reduce"
    PASS_REGULAR_EXPRESSION "--${option} cannot be no/such/directory/file.json [(]No such file")
endforeach()
