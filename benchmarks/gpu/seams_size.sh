#!/usr/bin/env bash
# Size of the kernels that seams_bench compares, from ptxas: registers, spills, bytes of SASS. It
# needs nvcc and readelf, but no GPU.
#   seams_size.sh [folder with the generated headers (<build>/include)] [architecture: 90]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
made=${1:-$root/build/include} arch=${2:-90}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${CUDACXX:-nvcc}" -arch="sm_$arch" -std=c++20 -O3 -DNDEBUG -cubin -Xptxas -v -I"$root/include" -I"$made" \
  -o "$dir/seams.cubin" "$root/benchmarks/gpu/seams_bench.cu" 2>"$dir/log"
show() {  # protocol, side, part of its kernel's name
  local bytes regs spills
  bytes=$(readelf -SW "$dir/seams.cubin" 2>/dev/null | grep -E " \.text\.[^ ]*$3" | sed -E 's/.*PROGBITS +[0-9a-f]+ +[0-9a-f]+ +([0-9a-f]+).*/\1/')
  regs=$(grep -A3 "Compiling entry function.*$3" "$dir/log" | grep -oE "Used [0-9]+" | cut -d' ' -f2)
  spills=$(grep -A3 "Compiling entry function.*$3" "$dir/log" | grep -oE "[0-9]+ bytes spill stores" | cut -d' ' -f1)
  printf '{"proto":"%s","kernel":"%s","registers":%d,"spilled_bytes":%d,"sass_bytes":%d}\n' "$1" "$2" "$regs" "$spills" "0x$bytes"
}
show LL128 ccl 'run_collective.*4RingENS_5LL128E'
show LL128 "by hand" 'ring_all_reduceINS_5Ll128E'
show Simple ccl 'run_collective.*4RingENS_6SimpleE'
show Simple "by hand" 'ring_all_reduceINS_6SimpleE'
