#!/bin/bash
# Prints the seconds of one core that compile a program with one all-reduce: the headers alone, one
# named composition, Auto, Auto with a functor and an element type of the program's own, and one named
# composition with its own headers. Uses $CXX -O2 and, if
# found, nvcc for sm_90. Each figure is the least of $1 (3) times, on an idle machine.
set -e
cd "$(dirname "$0")/../.."
times=${1:-3}
cuda=${CUDA_HOME:-/usr/local/cuda}/include
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

program() {  # headers, composition, type, functor
  printf '#include <ccl/%s>\n' $1
  [ -z "$2" ] && return
  [ "$3" = float ] || own_type_and_functor
  cat << END
ccl::Result<void> run($3* data) {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  CCL_TRY(const auto all_reduce, (ccl::Collective<$2>::create(comm)));
  CCL_CHECK(all_reduce(data, data, 1000, $4{}));
  return comm.finalize();
}
END
}
own_type_and_functor() {
  cat << 'END'
struct Place {
  float value;
  int rank;
};
struct Largest {
  static constexpr const char* name = "largest";
  CCL_HD Place operator()(const Place& a, const Place& b) const {
    return b.value > a.value || (b.value == a.value && b.rank < a.rank) ? b : a;
  }
};
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
  printf '%-58s %5.1f s\n' "$label" "$least"
}
times_of_children() {  # user time of this shell's children
  cat "/proc/$$/stat" | awk '{ print $16 / 100 }'
}

named="ccl::AllReduce, ccl::Ring, ccl::Simple"
own="algo/ring.hpp collective/all_reduce.hpp proto/simple.hpp"
auto="AllReduce by Auto"
for kind in "headers alone|" "AllReduce, Ring, Simple|$named" "$auto|ccl::AllReduce" \
  "$auto, functor and type of its own|ccl::AllReduce" "AllReduce, Ring, Simple: own headers|$named"; do
  host=ccl.hpp
  device=ccl.cuh
  type=float functor=ccl::Sum
  if [[ $kind == *"of its own"* ]]; then
    type=Place functor=Largest
  fi
  if [[ $kind == *"own headers"* ]]; then
    host=$own
    device="collective.cuh algo/ring.hpp"
  fi
  program "$host" "${kind#*|}" $type $functor > "$work/program.cpp"
  measure "g++ -O2: ${kind%|*}" "$work/program.cpp" "${CXX:-g++}" -std=c++20 -O2 -Iinclude \
    -isystem "$cuda" -isystem "$cuda/cccl"
  command -v nvcc > /dev/null || continue
  program "$device" "${kind#*|}" $type $functor > "$work/program.cu"
  measure "nvcc -O3: ${kind%|*}" "$work/program.cu" nvcc -std=c++20 -O3 -arch=sm_90 \
    -DFMT_USE_CONSTEXPR=1 -Iinclude
done
