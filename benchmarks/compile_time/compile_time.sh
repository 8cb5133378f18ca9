#!/bin/bash
# Compile time of a program with one all-reduce, in seconds of one core: the headers alone, one
# named composition, and Auto. It uses $CXX -O2 and nvcc for sm_90 if there is one. Prints the
# minimum of $1 (3) runs; other programs that run meanwhile still slow it down.
set -e
cd "$(dirname "$0")/../.."
times=${1:-3}
cuda=${CUDA_HOME:-/usr/local/cuda}/include
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

program() {  # header, composition
  echo "#include <ccl/$1>"
  [ -z "$2" ] || cat << END
ccl::Result<void> run(float* data) {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  CCL_TRY(const auto all_reduce, (ccl::Collective<$2>::create(comm)));
  CCL_CHECK(all_reduce(data, data, 1000, ccl::Sum{}));
  return comm.finalize();
}
END
}
measure() {  # label, file, command...
  local label=$1 file=$2 least=
  shift 2
  for ((i = 0; i < times; ++i)); do
    local before after
    before=$(times_of_children)
    "$@" -c "$file" -o "$work/out.o"
    after=$(times_of_children)
    least=$(awk -v a="$after" -v b="$before" -v l="$least" \
      'BEGIN { t = a - b; print l == "" || t < l ? t : l }')
  done
  printf '%-40s %5.1f s\n' "$label" "$least"
}
times_of_children() {  # user time of this shell's children
  cat "/proc/$$/stat" | awk '{ print $16 / 100 }'
}

for kind in "headers alone|" "AllReduce, Ring, Simple|ccl::AllReduce, ccl::Ring, ccl::Simple" \
  "AllReduce by Auto|ccl::AllReduce"; do
  program ccl.hpp "${kind#*|}" > "$work/program.cpp"
  measure "g++ -O2: ${kind%|*}" "$work/program.cpp" "${CXX:-g++}" -std=c++20 -O2 -Iinclude \
    -isystem "$cuda" -isystem "$cuda/cccl"
  command -v nvcc > /dev/null || continue
  program ccl.cuh "${kind#*|}" > "$work/program.cu"
  measure "nvcc -O3: ${kind%|*}" "$work/program.cu" nvcc -std=c++20 -O3 -arch=sm_90 \
    -DFMT_USE_CONSTEXPR=1 -Iinclude
done
