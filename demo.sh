#!/usr/bin/env bash
# Installs what is missing, builds, and runs the main job: an all-reduce benchmark that checks every
# element, on the GPUs if there are any, else on 4 CPU ranks. Arguments go to ccl_perf.
set -euo pipefail
cd "$(dirname "$0")"
. cmake/setup.sh

jobs=$(nproc)
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l || true)
if [ "$gpus" -gt 0 ] && [ -n "${CUDACXX:-}" ]; then
  cmake --preset cuda -DCCL_BUILD_TESTS=OFF -DCCL_BUILD_EXAMPLES=OFF >/dev/null
  cmake --build --preset cuda -j "$jobs" --target ccl_perf
  exec build-cuda/benchmarks/ccl_perf all_reduce --device cuda --ranks "$gpus" "$@"
fi
cmake --preset host >/dev/null
cmake --build --preset host -j "$jobs" --target ccl_perf
exec build/benchmarks/ccl_perf all_reduce --ranks 4 "$@"
