#!/usr/bin/env bash
# Seconds from a bare virtual environment to the first all-reduce of 4 ranks, the size of the wheel,
# and the time of the import.
#   first.sh WHEEL [arguments of pip, such as --no-index --find-links FOLDER]
set -euo pipefail
wheel=$(realpath "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.2f", b - a }'; }
cat >"$work/first.py" <<'PY'
import ccl, numpy as np
with ccl.Communicator.from_env() as comm:
    data = np.full(1000, comm.rank + 1, "float32")
    comm.all_reduce(data, out=data)
    assert data[999] == comm.ranks * (comm.ranks + 1) // 2
PY
begin=$(now)
python3 -m venv "$work/venv"
echo "virtual environment: $(since "$begin") s"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$@" "$wheel" numpy
echo "and the wheel and NumPy installed: $(since "$begin") s"
cd "$work"
for rank in 0 1 2 3; do
  RANK=$rank WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 20000)) venv/bin/python first.py &
  ranks[rank]=$!
done
for pid in "${ranks[@]}"; do wait "$pid"; done
echo "and the first all-reduce of 4 ranks: $(since "$begin") s"
for _ in 1 2 3 4 5 6 7 8 9; do
  begin=$(now)
  venv/bin/python -c "import ccl"
  with=$(since "$begin")
  begin=$(now)
  venv/bin/python -c pass
  echo "$with $(since "$begin")"
done | sort | awk '{ a[NR] = $1; b[NR] = $2 } END { print "python -c \"import ccl\": " a[5] " s (median of 9; without the import: " b[5] " s)" }'
echo "wheel: $(stat -c %s "$wheel") bytes"
