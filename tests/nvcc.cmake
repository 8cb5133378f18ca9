# Tests of the code that nvcc makes.

# These need nvcc, but no GPU. `check` is a script of support/, `name` that of the test and `file`
# what it compiles.
function(ccl_add_nvcc_test name check file)
  if(NOT CCL_ENABLE_CUDA OR NOT "${name}.gpu" MATCHES "${CCL_TEST_FILTER}")
    return()
  endif()
  add_test(NAME ${CCL_TEST_PREFIX}ccl.test.${name}.gpu COMMAND ${CMAKE_COMMAND}
    -Dnvcc=${CMAKE_CUDA_COMPILER} -Dsource=${PROJECT_SOURCE_DIR} -Dinclude=${PROJECT_BINARY_DIR}/include
    -Dfile=${file} -Dto=${CMAKE_CURRENT_BINARY_DIR}/${name}.out ${ARGN}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/support/check_${check}.cmake)
  set_tests_properties(${CCL_TEST_PREFIX}ccl.test.${name}.gpu PROPERTIES SKIP_REGULAR_EXPRESSION "SKIP: ")
endfunction()
# Each kernel waits for the previous launch before it ends, even if its body does nothing. Before
# sm_90 there are no early launches.
set(kernel_end "-Dpattern=\\.entry|griddepcontrol\\.[a-z_]+|ret")
set(one_kernel ".entry griddepcontrol.launch_dependents griddepcontrol.wait ret")
ccl_add_nvcc_test(detail.exec.kernel_end ptx detail/exec/kernel_end.cu -Darchitecture=90
  ${kernel_end} "-Dexpected=${one_kernel} ${one_kernel} ${one_kernel}")
ccl_add_nvcc_test(detail.exec.kernel_end_sm_75 ptx detail/exec/kernel_end.cu -Darchitecture=75
  ${kernel_end} "-Dexpected=.entry ret .entry ret .entry ret")
# The lanes of a line are together when they store it and when they load it.
ccl_add_nvcc_test(proto.ll128_lines ptx proto/ll128_lines.cu -Darchitecture=90
  "-Dpattern=bar\\.warp\\.sync|(st|ld)\\.relaxed"
  "-Dexpected=bar.warp.sync st.relaxed bar.warp.sync ld.relaxed")
# Each reduction of switches is the instruction of its elements.
set(load multimem.ld_reduce.relaxed.sys.global)
set(instructions ${load}.add.v4.f32 ${load}.add.f64 ${load}.add.f64 ${load}.add.acc::f32.v4.f16x2
  ${load}.add.acc::f32.v4.bf16x2 ${load}.min.v4.f16x2 ${load}.min.v4.bf16x2 ${load}.max.v4.f16x2
  ${load}.max.v4.bf16x2)
foreach(instruction IN ITEMS add.u32 add.u64 add.u64 min.u32 min.s32 min.u64 min.s64 max.u32 max.s32 max.u64 max.s64)
  list(APPEND instructions ${load}.${instruction} ${load}.${instruction})
  if(instruction MATCHES "32$")
    list(APPEND instructions ${load}.${instruction} ${load}.${instruction})
  endif()
endforeach()
list(APPEND instructions multimem.st.relaxed.sys.global.v4.f32 fence.proxy.alias multimem.st.release.sys.global.u64)
list(JOIN instructions " " instructions)
ccl_add_nvcc_test(detail.multicast.switch_memory ptx detail/multicast/switch_memory.cu -Darchitecture=90
  "-Dpattern=multimem[.a-z0-9_:]+|fence.proxy.alias" "-Dexpected=${instructions}")
# Only <ccl/nvls.cuh> has them. Four kernels: for aligned buffers, and for others, each for buffers
# that are copied, and for those that may lie in windows. The latter post their places first.
ccl_add_nvcc_test(detail.multicast.program ptx detail/multicast/program.cu -Darchitecture=90
  "-Dpattern=multimem|\\.entry" "-Dexpected=.entry .entry .entry .entry .entry")
set(kernel ".entry multimem.st.release multimem.ld_reduce multimem.st multimem.st.release")
set(in_windows ".entry multimem.st multimem.st multimem.st.release multimem.st.release multimem.st.release")
string(APPEND in_windows " multimem.ld_reduce multimem.ld_reduce multimem.st multimem.st multimem.st.release")
ccl_add_nvcc_test(detail.multicast.switch_program ptx detail/multicast/switch_program.cu -Darchitecture=90
  "-Dpattern=multimem\\.[a-z_]+(\\.release)?|\\.entry"
  "-Dexpected=.entry .entry .entry .entry .entry ${kernel} ${kernel} ${in_windows} ${in_windows}")
ccl_add_nvcc_test(detail.multicast.kernels architectures detail/multicast/kernels.cu
  "-Darchitectures=90 100" -Dspill_limit=0)
# One word of the all-reduce on sm_100.
ccl_add_nvcc_test(detail.multicast.window_kernels architectures detail/multicast/window_kernels.cu
  "-Darchitectures=90 100" -Dspill_limit=8)
# The instructions that the assembler makes of them. Sums of 16-bit floats have one of their own, in
# which the switch accumulates in more bits: F32ADD or HPADD, and not ADD.
find_program(CCL_NVDISASM nvdisasm HINTS ${CUDAToolkit_BIN_DIR} ${PROJECT_SOURCE_DIR}/.deps/nvdisasm/nvidia/cu13/bin)
set(of_all 4xLDGMC.E.ADD.32 4xLDGMC.E.ADD.64 1xLDGMC.E.ADD.F32x4.RN 2xLDGMC.E.ADD.F64.RN)
set(min_and_max 4xLDGMC.E.MAX.32 2xLDGMC.E.MAX.64 1xLDGMC.E.MAX.BF16x8.RN 1xLDGMC.E.MAX.F16x8.RN 4xLDGMC.E.MAX.S32
  2xLDGMC.E.MAX.S64 4xLDGMC.E.MIN.32 2xLDGMC.E.MIN.64 1xLDGMC.E.MIN.BF16x8.RN 1xLDGMC.E.MIN.F16x8.RN
  4xLDGMC.E.MIN.S32 2xLDGMC.E.MIN.S64)
set(on_90 ${of_all} 1xLDGMC.E.F32ADD.BF16x8.RN 1xLDGMC.E.F32ADD.F16x8.RN ${min_and_max})
set(on_100 ${of_all} 1xLDGMC.E.HPADD.BF16x8.RN 1xLDGMC.E.HPADD.F16x8.RN ${min_and_max})
list(JOIN on_90 " " on_90)
list(JOIN on_100 " " on_100)
ccl_add_nvcc_test(detail.multicast.switch_memory_sass sass detail/multicast/switch_memory.cu
  -Dnvdisasm=${CCL_NVDISASM} "-Darchitectures=90 100" "-Dpattern=LDGMC[.A-Z0-9x]+[.](RN|S32|S64|32|64)"
  "-Dexpected_90=${on_90}" "-Dexpected_100=${on_100}")
# One sum and one broadcast with them, one sum by the emulation. Stores are plain ones.
ccl_add_nvcc_test(detail.multicast.kernels_sass sass detail/multicast/kernels.cu
  -Dnvdisasm=${CCL_NVDISASM} "-Darchitectures=90 100" "-Dpattern=LDGMC[.A-Z0-9x]+|STG[.]E[.]128[.]STRONG[.]SYS"
  "-Dexpected_90=1xLDGMC.E.F32ADD.BF16x8.RN.STRONG.SYS 2xSTG.E.128.STRONG.SYS"
  "-Dexpected_100=1xLDGMC.E.HPADD.BF16x8.RN.STRONG.SYS 2xSTG.E.128.STRONG.SYS")
# What sm_100a has for 8-bit floats. In halves: HPADD.
set(float8)
foreach(operation IN ITEMS ADD HPADD MAX MIN)
  list(APPEND float8 1xLDGMC.E.${operation}.E4M3x16.RN 1xLDGMC.E.${operation}.E5M2x16.RN)
endforeach()
list(JOIN float8 " " float8)
ccl_add_nvcc_test(detail.multicast.float8_sass sass detail/multicast/float8.cu
  -Dnvdisasm=${CCL_NVDISASM} -Darchitectures=100a "-Dpattern=LDGMC[.A-Z0-9x]+[.]RN"
  "-Dexpected_100a=${float8}")
ccl_add_nvcc_test(hierarchical_moves ptx hierarchical_moves.cu -Darchitecture=90
  "-Dpattern=\\.version" -Dexpected=.version)
if(CCL_TEST_LONG)
  ccl_add_nvcc_test(detail.exec.architectures architectures detail/exec/architectures.cu
    "-Darchitectures=75 80 86 89 90 100 103 120" -Dspill_limit=100)
endif()
# Compiling `Auto` takes about as long as its PTX. The limits are for one all-reduce.
ccl_add_nvcc_test(detail.choose.kernels kernels detail/choose/kernels.cu -Darchitecture=90 -Dkernels=37 -Dlines=81200)
ccl_add_nvcc_test(element.architectures architectures element/architectures.cu
  "-Darchitectures=75 80 90" -Dspill_limit=0)
# Exchanges by code for GPUs before sm_90, which has no copy engine of its own, on the GPUs that are here.
if(TARGET ccl.test.detail.exchange.direct.gpu AND EXISTS /dev/nvidia0)
  add_executable(ccl.test.detail.exchange.direct_sm_80.gpu detail/exchange/direct_test.cu)
  set_target_properties(ccl.test.detail.exchange.direct_sm_80.gpu PROPERTIES CUDA_ARCHITECTURES 80-virtual)
  target_link_libraries(ccl.test.detail.exchange.direct_sm_80.gpu PRIVATE ccl_runtime ccl ccl_test_main)
  target_include_directories(ccl.test.detail.exchange.direct_sm_80.gpu PRIVATE ${PROJECT_SOURCE_DIR}/src)
  add_test(NAME ${CCL_TEST_PREFIX}ccl.test.detail.exchange.direct_sm_80.gpu COMMAND ccl.test.detail.exchange.direct_sm_80.gpu)
  set_tests_properties(${CCL_TEST_PREFIX}ccl.test.detail.exchange.direct_sm_80.gpu PROPERTIES LABELS gpu RESOURCE_LOCK gpu
    TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
