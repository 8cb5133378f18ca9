#!/usr/bin/env bash
# Installs what is missing, builds, and runs the main job: an all-reduce benchmark that checks every
# element, on all GPUs of this machine, or on 4 CPU ranks where there are none. Arguments go to
# ccl_perf.
set -euo pipefail
cd "$(dirname "$0")"
. cmake/setup.sh

jobs=$(nproc)
has_gpus=
if nvidia-smi --list-gpus 2>/dev/null | grep GPU >/dev/null; then has_gpus=1; fi
if [ -n "${CUDACXX:-}" ] && [ -n "$has_gpus" ]; then
  # Only this collective's kernels, and what ccl_perf needs itself: a minute instead of several.
  cmake --preset cuda -B build-demo -DCCL_BUILD_TESTS=OFF -DCCL_BUILD_EXAMPLES=OFF -DCCL_BUILD_TOOLS=OFF \
    "-DCCL_PERF_OPS=AllReduce;AllToAll" >/dev/null
  cmake --build build-demo -j "$jobs" --target ccl_perf
  exec build-demo/benchmarks/ccl_perf all_reduce --graph 20 "$@"
fi
if [ -n "$has_gpus" ]; then say "This machine has GPUs, but no nvcc: ccl_perf runs on CPU ranks."; fi
# Only what this collective's CPU ranks choose from, for the same reason.
cmake --preset host -B build-demo -DCCL_BUILD_TESTS=OFF -DCCL_BUILD_EXAMPLES=OFF -DCCL_BUILD_TOOLS=OFF \
  "-DCCL_PERF_OPS=AllReduce;AllToAll" "-DCCL_PERF_ALGOS=Doubling;Ring;Tree;Rails;Pairwise" \
  -DCCL_PERF_PROTOS=Simple >/dev/null
cmake --build build-demo -j "$jobs" --target ccl_perf
exec build-demo/benchmarks/ccl_perf all_reduce --ranks 4 "$@"
