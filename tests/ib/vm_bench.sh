#!/usr/bin/env bash
# vm_bench.sh PROGRAMS: runs inside the virtual machine (rxe-vm.sh -n 2). It compares IbTransport's
# wires with perftest, five times in turns: eight writes in flight, and half of a round trip of 8
# bytes. perftest writes from one buffer to one buffer; with -q 8 from eight to eight, like the
# slots of a wire.
bin=$1
export CCL_SOCKET_IFNAME=eth0 CCL_IB_HCA==rxe0,rxe1 CCL_IB_TIMEOUT=14  # perftest's own timeout
perf() { # PROGRAM ARGS
  vh 1 timeout 20 "$@" -d rxe1 -x 1 -F >/dev/null 2>&1 &
  local server=$!
  for _ in {1..20}; do  # until the server listens
    sleep 0.3
    if vh 0 timeout 20 "$@" -d rxe0 -x 1 -F 10.0.0.2 2>/dev/null; then break; fi
  done
  wait $server
}
bandwidth() { # LABEL BYTES
  awk -v l="$1" -v b=$2 '$1 == b { printf "%s %s bytes: %.1f MB/s\n", l, b, $4 * 1.048576 }'
}
for turn in 1 2 3 4 5; do
  for bytes in 65536 1048576; do
    n=$((bytes >= 1048576 ? 60 : 300))
    perf ib_write_bw -s $bytes -n $n -t 8 -N | bandwidth perftest $bytes
    perf ib_write_bw -s $bytes -n $((n / 8)) -t 1 -q 8 -N | bandwidth "perftest, 8 buffers" $bytes
    for rank in 0 1; do RANK=$rank BYTES=$bytes STEPS=$n vh $rank timeout 20 "$bin/ccl.vm.put" & done | grep ^ccl
    wait
  done
  perf ib_write_lat -s 8 -n 500 | awk '$1 == 8 { print "perftest 8 bytes: median of 500 half round trips " $5 " us" }'
  for rank in 0 1; do RANK=$rank BYTES=8 STEPS=100 PINGS=500 vh $rank timeout 20 "$bin/ccl.vm.put" & done | grep ^ccl
  wait
done
