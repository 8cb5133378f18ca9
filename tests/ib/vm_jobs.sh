#!/usr/bin/env bash
# vm_jobs.sh PROGRAMS [CASE]...: inside the virtual machine. Each case prints one line of verdict; at
# the end the cases are counted.
set -u
bin=$1
shift
export CCL_COMM_ID=10.0.0.1:4711 CCL_SOCKET_IFNAME=eth0 CCL_TIMEOUT=100
failed=0 cases=0

# job N CMD...: one rank on each of N hosts. Their statuses, one after the other, in $statuses.
job() {
  local n=$1 i pids=()
  shift
  for ((i = 0; i < n; i++)); do
    RANK=$i WORLD_SIZE=$n vh $i timeout -k 2 ${limit:-150} "$@" >/run/out.$i 2>&1 &
    pids+=($!)
  done
  statuses=
  for ((i = 0; i < n; i++)); do
    wait ${pids[i]}
    statuses+=" $?"
  done
  cat /run/out.*
  sed -n 's/.*: \([0-9]*\) calls checked.*/\1/p' /run/out.0 >>/run/checked
  seconds=$((SECONDS - began))
}
begin() {
  if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $1 "* ]]; then return 1; fi
  case=$1 began=$SECONDS
  rm -f /run/out.*
  echo "== $case"
}
# verdict STATUSES [TEXT]: of the last job; TEXT must be somewhere in what it printed.
verdict() {
  cases=$((cases + 1))
  if [[ "$statuses" == $1 ]] && { [ -z "${2:-}" ] || grep -q "$2" /run/out.*; }; then
    echo "ok   $case ($seconds s)"
  else
    failed=$((failed + 1))
    echo "FAIL $case: statuses$statuses instead of $1${2:+, or no \"$2\"} ($seconds s)"
  fi
}
# Once rank 0 is under way: ill-treats the network.
meanwhile() { (for _ in {1..300}; do grep -qs "under way" /run/out.0 && break; sleep 0.1; done; sleep "$1"; eval "$2") & }
one_device='=rxe0,rxe1,rxe2,rxe3,rxe4,rxe5,rxe6,rxe7'
wanted=("$@")

begin collectives_2_hosts && { job 2 env CCL_IB_HCA=$one_device "$bin/ccl.vm.hosts"; verdict " 0 0" "calls checked"; }
begin collectives_4_hosts && { limit=400 job 4 env CCL_IB_HCA=$one_device "$bin/ccl.vm.hosts"; verdict " 0 0 0 0" "calls checked"; }
for proto in Simple LL LL128; do
  begin collectives_8_hosts_$proto && { limit=400 job 8 env CCL_IB_HCA=$one_device "$bin/ccl.vm.hosts" $proto; verdict " 0 0 0 0 0 0 0 0" "calls checked"; }
done
begin collectives_2_hosts_split && { job 2 env CCL_IB_QPS_PER_CONNECTION=2 CCL_IB_SPLIT_DATA_ON_QPS=1 "$bin/ccl.vm.hosts"; verdict " 0 0" "calls checked"; }
begin queue_pairs_in_turn && { job 2 env CCL_IB_HCA=$one_device CCL_IB_QPS_PER_CONNECTION=4 "$bin/ccl.vm.endure" 20 300000; verdict " 0 0"; }
begin split_on_queue_pairs && { job 2 env CCL_IB_HCA=$one_device CCL_IB_QPS_PER_CONNECTION=3 CCL_IB_SPLIT_DATA_ON_QPS=1 "$bin/ccl.vm.endure" 20 300000; verdict " 0 0"; }
begin two_devices && { job 2 "$bin/ccl.vm.endure" 20 1000000; verdict " 0 0"; }
begin two_devices_split_announced && { job 2 env CCL_IB_QPS_PER_CONNECTION=2 CCL_IB_SPLIT_DATA_ON_QPS=1 CCL_IB_ADAPTIVE_ROUTING=1 CCL_IB_AR_THRESHOLD=1000 "$bin/ccl.vm.endure" 20 1000000; verdict " 0 0"; }
begin devices_not_merged && { job 2 env CCL_IB_MERGE_NICS=0 "$bin/ccl.vm.endure" 20 1000000; verdict " 0 0"; }
begin ipv6_gid && { job 2 env CCL_IB_HCA=$one_device CCL_IB_ADDR_FAMILY=AF_INET6 "$bin/ccl.vm.endure" 5 100000; verdict " 0 0"; }
begin two_and_one_devices && { job 2 env CCL_IB_HCA==rxe0,rxe1,rxe1_1 "$bin/ccl.vm.endure" 10 1000000; verdict " 0 0"; }
begin queue_pair_in_error && { job 2 env CCL_IB_HCA=$one_device "$bin/ccl.vm.endure" 20 300000 5; verdict " 0 0" "goes on over"; }
begin loss_and_delay && {
  for i in 0 1; do tc qdisc add dev rdma$i root netem delay 1ms loss 0.2%; done
  job 2 env CCL_IB_HCA=$one_device CCL_IB_TIMEOUT=16 "$bin/ccl.vm.endure" 5 300000
  for i in 0 1; do tc qdisc del dev rdma$i root; done
  verdict " 0 0"
}
begin much_loss && {
  for i in 0 1 2 3; do tc qdisc add dev rdma$i root netem delay 5ms loss 1%; done
  job 4 env CCL_IB_HCA=$one_device CCL_IB_TIMEOUT=16 "$bin/ccl.vm.endure" 5 300000
  for i in 0 1 2 3; do tc qdisc del dev rdma$i root; done
  verdict " 0 0 0 0"
}
begin much_reordering && {  # which reliable connections answer by sending everything again
  for i in 0 1; do tc qdisc add dev rdma$i root netem delay 5ms 2ms loss 1%; done
  CCL_TIMEOUT=20 job 2 env CCL_IB_HCA=$one_device CCL_IB_TIMEOUT=16 "$bin/ccl.vm.endure" 5 300000
  for i in 0 1; do tc qdisc del dev rdma$i root; done
  verdict " [03] [03]"
}
begin one_of_two_devices_down && {
  meanwhile 0.5 "ip link set rdma1_1 down"
  job 2 env CCL_IB_TIMEOUT=14 "$bin/ccl.vm.endure" 60 1000000
  ip link set rdma1_1 up
  verdict " 0 0" "goes on over"
}
begin device_down_of_one_in_8 && {
  meanwhile 0.5 "ip link set rdma5_1 down"
  job 8 env CCL_IB_TIMEOUT=14 "$bin/ccl.vm.endure" 20 300000
  ip link set rdma5_1 up
  verdict " 0 0 0 0 0 0 0 0" "goes on over"
}
begin only_device_of_one_in_8_down && {
  meanwhile 0.5 "ip link set rdma5 down"
  job 8 env CCL_IB_HCA=$one_device CCL_IB_TIMEOUT=14 "$bin/ccl.vm.endure" 2000 300000
  ip link set rdma5 up
  verdict " 3 3 3 3 3 3 3 3"
}
begin only_device_down && {
  meanwhile 0.5 "ip link set rdma1 down"
  job 2 env CCL_IB_HCA=$one_device CCL_IB_TIMEOUT=14 "$bin/ccl.vm.endure" 2000 300000
  ip link set rdma1 up
  verdict " 3 3"
}
begin link_swallows_everything && {
  meanwhile 0.5 "tc qdisc add dev rdma1 root netem loss 100%"
  job 2 env CCL_IB_HCA=$one_device CCL_IB_TIMEOUT=14 CCL_IB_RETRY_CNT=3 "$bin/ccl.vm.endure" 2000 300000
  tc qdisc del dev rdma1 root
  verdict " 3 3" "IBV_WC_RETRY_EXC_ERR"
}
begin rank_killed && {
  meanwhile 0.5 "pkill -9 --ns $(</run/vh/1.pid) --nslist net ccl.vm.endure"
  job 2 env CCL_IB_HCA=$one_device "$bin/ccl.vm.endure" 2000 300000
  verdict " 3 137"
}
total=$(cat /run/checked 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }')
echo "$total collective calls checked"
echo "$((cases - failed)) of $cases cases as expected"
exit $((failed > 0))
