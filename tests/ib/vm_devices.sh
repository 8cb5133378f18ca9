#!/usr/bin/env bash
# vm_devices.sh PROGRAMS [full]: runs inside a virtual machine with several RDMA devices for each
# host. Collectives over IbTransport; after each, the devices of a host must have sent alike, by the
# kernel's own counters of their interfaces. "full" adds hosts with several ranks.
set -u
bin=$1 full=${2:-}
export CCL_COMM_ID=10.0.0.1:4711 CCL_SOCKET_IFNAME=eth0 CCL_TIMEOUT=200 CCL_INIT_TIMEOUT=200
export CCL_BOOTSTRAP_KEEPALIVE=60
calls=10 bytes=2000000 failed=0
sent() {
  local f
  for f in /sys/class/net/rdma[0-9]*; do echo "${f##*/} $(<"$f/statistics/tx_bytes")"; done | sort
}
# run HOSTS RANKS LEAST PROGRAM...: so many ranks on each host, which sends so many bytes at least.
run() {
  local hosts=$1 ranks=$2 least=$3 i pids=() status=0 why=
  shift 3
  sent >/run/before
  for ((i = 0; i < hosts * ranks; i++)); do
    RANK=$i WORLD_SIZE=$((hosts * ranks)) LOCAL_RANK=$((i % ranks)) LOCAL_WORLD_SIZE=$ranks \
      vh $((i / ranks)) timeout -k 2 300 "$bin/$1" "${@:2}" >/run/out.$i 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || status=$?; done
  sent >/run/after
  echo "$hosts hosts, $ranks ranks each, $*: MB sent by device"
  # Beside the data, devices send acknowledgments, and probes of neighbors.
  join /run/before /run/after | awk -v hosts="$hosts" -v least="$least" '
    { host = $1; sub(/^rdma/, "", host); sub(/_.*/, "", host) }
    host + 0 < hosts {
      n = $3 - $2; sum[host] += n; count[host]++
      line[host] = line[host] sprintf(" %.2f", n / 1e6)
      if (!(host in low) || n < low[host]) low[host] = n
      if (n > high[host]) high[host] = n
    }
    END {
      for (host in sum) {
        mean = sum[host] / count[host]
        print "  host " host ":" line[host]
        if (sum[host] < least || high[host] > 1.05 * mean || low[host] < 0.95 * mean) bad = 1
      }
      exit bad
    }' || why="a device is more than 5 % off the mean of its host, or too little was sent"
  if [ $status != 0 ]; then why="a rank ended with $status: $(tail -n 3 /run/out.* | cut -c 1-600)"; fi
  if [ -n "$why" ]; then
    echo "FAIL: $why"
    failed=1
  fi
}
# Each host sends, of what all ranks have, an all-reduce's data once and the other hosts' part of an
# exchange. In a ring, the shares of all hosts but one leave it.
all() {
  local hosts=$1 ranks=$2 whole=$((calls * bytes))
  local part=$((whole / hosts * (hosts - 1)))
  run "$hosts" "$ranks" $whole ccl.vm.endure $calls $bytes
  run "$hosts" "$ranks" $part ccl.vm.moves all_gather $calls $bytes
  run "$hosts" "$ranks" $part ccl.vm.moves reduce_scatter $calls $bytes
  run "$hosts" "$ranks" $((part * ranks)) ccl.vm.moves all_to_all $calls $bytes
  run "$hosts" "$ranks" $((whole * ranks)) ccl.vm.moves send_recv $calls $bytes
}
all 2 1
if [ "$full" = full ]; then
  all 4 1
  all 2 4
  all 4 2
  all 4 4
fi
exit $failed
