#!/usr/bin/env bash
# vm_devices.sh PROGRAMS [full]: runs inside a virtual machine with several RDMA devices for each
# host. All-reduces over IbTransport; then the devices of a host must have sent alike, by the
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
# run HOSTS RANKS: so many ranks on each host.
run() {
  local hosts=$1 ranks=$2 i pids=() status=0 why=
  sent >/run/before
  for ((i = 0; i < hosts * ranks; i++)); do
    RANK=$i WORLD_SIZE=$((hosts * ranks)) LOCAL_RANK=$((i % ranks)) LOCAL_WORLD_SIZE=$ranks \
      vh $((i / ranks)) timeout -k 2 300 "$bin/ccl.vm.endure" $calls $bytes >/run/out.$i 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || status=$?; done
  sent >/run/after
  echo "$hosts hosts, $ranks ranks each: MB sent by device"
  # Each host sends the data at least once. Rest: acknowledgments, and probes of neighbors.
  join /run/before /run/after | awk -v hosts="$hosts" -v least=$((calls * bytes)) '
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
run 2 1
run 4 1
if [ "$full" = full ]; then
  run 2 4
  run 4 2
  run 4 4
fi
exit $failed
