#!/bin/sh
# Builds all fuzz targets and runs each for SECONDS, JOBS (initially 2) at a time. Prints executions,
# new units and crashes, and fails if any target crashes.
#   [JOBS=N] tests/fuzz/run.sh SECONDS [BUILD_FOLDER [TARGET...]]
# 0 SECONDS: it only configures, and compiles the one target that no other build has.
# The corpus of a target stays in BUILD_FOLDER/corpus/NAME; inputs that crash are in
# BUILD_FOLDER/crashes. CCL_FUZZ_COVERAGE=1 builds for llvm-cov and prints coverage by folder.
set -eu
seconds=${1:?usage: tests/fuzz/run.sh SECONDS [BUILD_FOLDER [TARGET...]]}
here=$(cd "$(dirname "$0")/../.." && pwd)
build=${2:-$here/build-fuzz}
[ $# -le 2 ] && shift $# || shift 2
clang=$(command -v clang++-16 || command -v clang++) || { echo "SKIP: no clang++"; exit 77; }
coverage=${CCL_FUZZ_COVERAGE:-0}
mkdir -p "$build/corpus" "$build/crashes" "$build/logs"
cmake -G Ninja -S "$here" -B "$build" -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DCCL_BUILD_FUZZERS=ON -DCCL_FUZZ_COVERAGE="$coverage" \
  -DCCL_UNITY=ON -DCCL_PCH=OFF -DCCL_BUILD_NCCL=ON -DCCL_NCCL_TYPES=float -DCCL_NCCL_REDOPS=Sum \
  -DCCL_BUILD_BENCHMARKS=OFF -DCCL_BUILD_EXAMPLES=OFF -DCCL_BUILD_TOOLS=OFF \
  -DCCL_TEST_FILTER=nothing > "$build/logs/cmake.log"
if [ "$seconds" = 0 ]; then
  exec ninja -C "$build" tests/fuzz/CMakeFiles/ccl.fuzz.nccl_config.dir/nccl_config_fuzz.cpp.o
fi
ninja -C "$build" ccl.fuzz > "$build/logs/ninja.log" || {
  tail -n 30 "$build/logs/ninja.log"
  exit 1
}
targets=${*:-$(cd "$build/tests/fuzz" && ls | sed -n 's/^ccl\.fuzz\.\([a-z_]*\)$/\1/p')}

# -print_funcs=0: a symbolizer's pipes would count as descriptors that the product leaves open.
one() {
  program=$build/tests/fuzz/ccl.fuzz.$1
  mkdir -p "$build/corpus/$1"
  LLVM_PROFILE_FILE=/dev/null "$program" "--seeds=$build/corpus/$1"
  leaks=1
  [ "$1" != plug_in ] || leaks=0  # detached threads close a plug-in's objects, some of them after the end
  if ASAN_OPTIONS=detect_leaks=$leaks LLVM_PROFILE_FILE=$build/logs/$1.profraw "$program" -max_total_time="$seconds" -timeout=20 \
    -print_funcs=0 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 -artifact_prefix="$build/crashes/$1-" \
    "$build/corpus/$1" > "$build/logs/$1.log" 2>&1
  then state=fine
  elif grep -q '^SKIP' "$build/logs/$1.log"; then state=skipped
  else state=CRASHED
  fi
  value() { sed -n "s/^stat::$1: *//p" "$build/logs/$2.log" | tail -n 1; }
  printf '%-14s %10s executions %6s/s %6s new units  %s\n' "$1" \
    "$(value number_of_executed_units "$1")" "$(value average_exec_per_sec "$1")" \
    "$(value new_units_added "$1")" "$state" | tee "$build/logs/$1.result"
}

running=
for target in $targets; do
  one "$target" &
  running="$running $!"
  set -- $running
  if [ $# -ge "${JOBS:-2}" ]; then  # the one that began first ends first
    wait "$1"
    shift
    running=$*
  fi
done
wait
if [ "$coverage" = 1 ]; then
  profdata=$(command -v llvm-profdata-16 || command -v llvm-profdata)
  cov=$(command -v llvm-cov-16 || command -v llvm-cov)
  "$profdata" merge -sparse "$build"/logs/*.profraw -o "$build/logs/all.profdata"
  # The first program is an argument by place: llvm-cov takes the first such argument for a program,
  # and all others for folders of sources.
  set --
  for target in $targets; do
    [ $# = 0 ] || set -- "$@" -object
    set -- "$@" "$build/tests/fuzz/ccl.fuzz.$target"
  done
  "$cov" report "$@" -instr-profile="$build/logs/all.profdata" > "$build/logs/coverage"
  for folder in net bootstrap comm transport transport/ib transport/socket choose settings topo; do
    awk -v folder="$folder" 'BEGIN { name = "(^|/)src/" folder "/" }
      $1 ~ name { all += $8; missed += $9 }
      END { if (all) printf "lines of src/%-18s %5.1f %% of %d\n", folder, 100 * (1 - missed / all), all }' \
      "$build/logs/coverage"
  done
fi
! grep -l CRASHED "$build"/logs/*.result
