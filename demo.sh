#!/usr/bin/env bash
# Installs what is missing, builds, and runs the main job: an all-reduce benchmark that checks every
# element, on 4 CPU ranks. Arguments go to ccl_perf.
set -euo pipefail
cd "$(dirname "$0")"
. cmake/setup.sh

jobs=$(nproc)
cmake --preset host >/dev/null
cmake --build --preset host -j "$jobs" --target ccl_perf
if nvidia-smi --list-gpus 2>/dev/null | grep -q GPU; then
  say "This machine has GPUs, but ccl_perf has no device code yet; it runs on CPU ranks."
fi
exec build/benchmarks/ccl_perf all_reduce --ranks 4 "$@"
