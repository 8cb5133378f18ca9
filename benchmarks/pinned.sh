#!/usr/bin/env bash
# Compares ccl with NCCL, both pinned to one algorithm and protocol, in one command:
#   pinned.sh <ccl_perf> <folder for the files> [collective ...]
# NCCL's settings are NCCL_ALGO and NCCL_PROTO, and its library is PERF_NCCL_LIBRARY. The last table
# holds NCCL's time over ccl's. PINNED_OPTIONS is added to each run ("--ranks 2", "--rounds 5").
set -euo pipefail
perf=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- all_reduce all_gather reduce_scatter
mkdir -p "$out"
for op in "$@"; do
  while read -r algo proto begin end factor; do
    [ "$op" = all_reduce ] || [ "$algo" = ring ] || continue
    echo "== $op $algo $proto"
    # shellcheck disable=SC2086
    "$perf" "$op" --device cuda --graph 20 --compare nccl --nccl-modes plain --algo "$algo" --proto "$proto" \
      --nccl-algo "$algo" --nccl-proto "$proto" -b "$begin" -e "$end" -f "$factor" --rounds 3 --timeout 20 --limit 20 \
      --json "$out/pinned_${op}_${algo}_$proto.json" ${PINNED_OPTIONS:-} || echo "failed: $op $algo $proto"
  done <<'pairs'
ring ll 256 64K 16
ring ll128 64K 16M 4
ring simple 4M 1G 16
tree ll 256 64K 16
tree ll128 64K 16M 4
tree simple 4M 256M 8
pairs
done
python3 - "$out" <<'table'
import glob, json, statistics, sys
for name in sorted(glob.glob(sys.argv[1] + '/pinned_*.json')):
    run = json.load(open(name))
    cells = []
    for row in run['rows']:
        rival = [statistics.median(mode['us']) for mode in row.get('nccl', []) if mode['us']]
        wrong = row['ccl']['wrong'] + sum(mode['wrong'] for mode in row.get('nccl', []))
        if not rival or not row['ccl']['us']:
            cells.append(f"{row['bytes']}: none")
            continue
        ours = statistics.median(row['ccl']['us'])
        cells.append(f"{row['bytes']}: {min(rival) / ours:.2f} ({ours:.2f} us)" + (f" WRONG {wrong}" if wrong else ''))
    print(name.split('/pinned_')[-1][:-5], '; '.join(cells), sep=': ')
table
