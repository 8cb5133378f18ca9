#!/usr/bin/env bash
# Installs what is missing, builds, and runs the test suite: the plain build, parts of it again under
# the sanitizers, and, where nvcc is, the device code. What was skipped is listed with its reason.
#   test.sh [--long] [arguments of ctest]
# --long adds what takes long.
set -euo pipefail
cd "$(dirname "$0")"
. cmake/setup.sh --docs

long=OFF
if [ "${1:-}" = --long ]; then
  long=ON
  shift
fi
jobs=$(nproc)
builds=(test)
stages=() stage_begun=$SECONDS
# The stage that ends here, for the list at the end.
ended() {
  stages+=("$(printf '%2d:%02d  %s' $(((SECONDS - stage_begun) / 60)) $(((SECONDS - stage_begun) % 60)) "$1")")
  stage_begun=$SECONDS
}
notes=()
python_types="float;double;std::int64_t;bfloat16"
if [ $long = ON ]; then python_types=all; fi
# lld, if it is there, links each of the 300 programs in a quarter of the time.
mkdir -p build-test
linker=
if echo 'int main() {}' | c++ -fuse-ld=lld -x c++ - -o build-test/try_lld 2>/dev/null; then linker=-fuse-ld=lld; fi
batch=-DCCL_TEST_BATCH=8
cmake --preset test $batch -DCCL_TEST_LONG=$long "-DCCL_TEST_PYTHON_TYPES=$python_types" "-DCMAKE_EXE_LINKER_FLAGS=$linker"
# A virtual machine with software RDMA, for the tests of IbTransport between hosts: mostly downloads.
bash tests/ib/rxe-vm.sh -p build-test/vm &
vm=$!
cmake --build --preset test -j "$jobs"
ended "build-test"
# Under the sanitizers, what they are best at: memory at the edges, threads everywhere.
notes+=("ccl_perf: compiled with sum only (no test of it calls max; the tests collective.* and element.* run the others)")
declare -A sanitized=(
  [asan]='^(src\.(net|transport)|transport\.([^n]|n[^v]|nvls$)|detail\.transport|topo\.xml$|detail\.runtime\.(bootstrap|bootstrap_failures|bootstrap_process|proxy_engine)$|comm\.communicator$)'
  [tsan]='^(src\.transport\.([^p]|p[^l])|transport\.([^n]|n[^v]|nvls$)|detail\.transport|algo\.(ring|tree|pairwise)$|comm\.communicator$|detail\.runtime\.proxy_engine$|detail\.base\.biased_mutex$|src\.launch\.short_context$|device\.(programs|session|tiles)$)'
)
if [ $long = ON ]; then
  sanitized[asan]+='|^(collective\.collective_simple|element\.types_ring|transport\.nvls_types)$'
  sanitized[tsan]+='|^transport\.nvls_types$'
else
  notes+=("tsan: tests without precompiled headers, by which an include that one lacks is found (only with --long, and in builds with ccache)")
  notes+=("Python wheel: compiled with reductions of float, double, int64 and bfloat16 (all types with --long)")
  notes+=("asan and tsan: transport.nvls_types (only with --long; the plain build runs it, and transport.nvls under both takes the same ways of the code)")
  notes+=("tsan: fewer counts, ranks and rounds in algo.pairwise, algo.ring, algo.tree, device.programs, device.tiles, src.launch.short_context and src.transport.ib.registered_algorithms (all with --long; the plain build takes all)")
  notes+=("headers in detail/: compiled as parts of the public ones (each alone with --long)")
  notes+=("asan: collective.collective_simple and element.types_ring, and checks of alignment (only with --long)")
  notes+=("consume.add_subdirectory: it compiles the runtime again, every source alone and without precompiled headers: includes of other libraries that one lacks are found there (only with --long)")
  notes+=("played.wide_packets, wide_messages, wide_direct: 16 and 72 ranks of one host (only with --long)")
  notes+=("played.room_simulator: four hosts of the shapes dgx and one-sided, two hosts of all (four hosts of ndv4 and two-nics only with --long)")
  notes+=("aarch64: runtime and a part of the tests by the cross compiler, run by qemu (only with --long)")
  notes+=("ib.vm: the rarer of its cases, 8 hosts, and LL128 on 4 hosts (only with --long; LL128 runs on 2 hosts)")
  notes+=("ib.devices: 4 hosts, and several ranks for each (only with --long; a rank on each of 2 hosts runs)")
  notes+=("PyTorch backend: tests/python/test_torch.py under Debian's PyTorch (only with --long, which downloads it)")
  notes+=("fuzz targets: a second each, and of libFuzzer's one is compiled (a minute, and 20 s for all of libFuzzer's, with --long)")
  notes+=("comm.communicator_faults and comm.communicator_limits: a part of the faults and limits (all with --long)")
fi
notes+=("asan: leaks in tests of network plug-ins (their objects are closed by detached threads)")
notes+=("tsan: src.transport.plug_in.* (g++ 12's does not see timed locks of std::recursive_timed_mutex)")
for sanitizer in asan tsan; do
  test_pch=ON
  if [ $long$sanitizer = ONtsan ]; then test_pch=OFF; fi
  cmake --preset "host-$sanitizer" $batch -DCCL_TEST_LONG=$long "-DCCL_TEST_FILTER=${sanitized[$sanitizer]}" -DCCL_RUNTIME_EXCLUDE=/src/sim/ \
    "-DCCL_TEST_MAIN_FROM=$PWD/build-test" "-DCCL_TEST_PCH=$test_pch" "-DCMAKE_EXE_LINKER_FLAGS=$linker" >/dev/null
  cmake --build --preset "host-$sanitizer" -j "$jobs"
  builds+=("$sanitizer")
  ended "build-$sanitizer"
done
for version in 12.4 12.8; do
  [ -e .deps/cuda-$version/nvidia/cuda_runtime/include/cuda.h ] ||
    notes+=("toolkit_${version/./_}: the headers of CUDA $version are not in .deps/cuda-$version (pip installs them)")
done
if [ -n "${CUDACXX:-}" ]; then
  exclude= optimized="-O3 -DNDEBUG"
  options=(-DCCL_BUILD_NCCL=ON "-DCCL_NCCL_TYPES=float;bfloat16;std::int64_t" "-DCCL_NCCL_REDOPS=Sum;Max;Min;Avg;PreMulSum")
  if [ ! -e /dev/nvidia0 ]; then
    if [[ $("$CUDACXX" --help) == *--Ofast-compile* ]]; then  # nothing of it will run
      optimized="-O0 -DNDEBUG -Ofc=max"
      notes+=("device code: compiled without optimization (no GPU here)")
    fi
    exclude='^gpu\.(auto_budget|types_[1-7]|ring_(ll|simple)|tree_(ll|ll128))\.gpu$'
    whole='^(gpu\.(auto|communicator)|detail\..*|bench\.call)\.gpu$'
    options=(-DCCL_TEST_CUDA_ARCHITECTURES=90-virtual "-DCCL_TEST_CUDA_WHOLE=$whole")
    notes+=("device code of GPU tests: compiled, not assembled, as that of benchmarks is (no GPU here)")
    notes+=("host code of GPU tests and benchmarks but auto, communicator, detail.* and call_bench: read by nvcc, not compiled (no GPU here; the tests played.* run the host code of the library with played GPUs)")
    notes+=("libnccl: for CPU ranks only (no GPU here; its device code is that of the candidates of Auto)")
    notes+=("GPU tests auto_budget, types_1 to 7, ring_ll, ring_simple, tree_ll, tree_ll128: not compiled (no GPU here; they are others with more operations, other types and protocols)")
  fi
  # Beside the runtime of the plain build, which is the same.
  cmake --preset cuda -DCCL_TEST_LONG=$long -DCCL_WARNINGS_AS_ERRORS=ON -DCCL_TEST_FILTER='\.gpu$' "-DCCL_TEST_EXCLUDE=$exclude" "-DCCL_RUNTIME_FROM=$PWD/build-test" \
    "${options[@]}" \
    "-DCMAKE_CUDA_FLAGS_RELEASE=$optimized" >/dev/null
  cmake --build --preset cuda -j "$jobs"
  builds+=(cuda)
  ended "build-cuda"
else
  notes+=("device code: not compiled (no nvcc)")
fi

if ! wait $vm; then
  notes+=("InfiniBand between hosts: the virtual machine cannot be made (see build-test/vm/apt.log)")
fi
ended "virtual machine for RDMA"

# One run over all builds, so that one summary closes it.
mkdir -p build-test/all
: >build-test/all/CTestTestfile.cmake
for name in "${builds[@]}"; do
  echo "subdirs(\"$PWD/build-$name\")" >>build-test/all/CTestTestfile.cmake
done
# Of the tests that need a core (cmake/ccl_test_cores.cmake) as many at once as there are cores, and four that wait.
cat >build-test/all/cores.json <<JSON
{"version": {"major": 1, "minor": 0}, "local": [{"cores": [{"id": "all", "slots": $((jobs < 2 ? 2 : jobs))}]}]}
JSON
skipped() {
  echo
  echo "Skipped, and why:"
  {
    for note in "${notes[@]}"; do echo "  $note"; done
    awk '/^[0-9]+\/[0-9]+ Test: / { test = $3 } /^ *SKIP: / { print "  " test ": " $0 }' \
      build-test/all/Testing/Temporary/LastTest.log | sort -u
  } | grep . || echo "  nothing"
  echo
}
# CTest's closing lines are held back until the skips and the times are listed.
status=0
set +e
ctest --test-dir build-test/all --output-on-failure --no-tests=error -j $((jobs + 4)) --resource-spec-file "$PWD/build-test/all/cores.json" "$@" | {
  closing=
  while IFS= read -r line; do
    if [[ $line =~ ^[0-9]+%\ tests\ passed ]]; then closing=1; fi
    if [ -n "$closing" ]; then held+=("$line"); else printf '%s\n' "$line"; fi
  done
  ended "ctest"
  skipped
  echo "Minutes by stage:"
  printf '  %s\n' "${stages[@]}"
  echo
  printf '%s\n' "${held[@]}"
}
status=${PIPESTATUS[0]}
exit "$status"
