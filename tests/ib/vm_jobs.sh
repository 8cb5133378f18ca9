#!/usr/bin/env bash
# vm_jobs.sh PROGRAMS [full | CASE...]: runs inside the virtual machine. Each case prints its
# result in one line when it ends. The end of the output repeats the output of failed cases and all
# results. "full" adds the slow cases, and calls every collective nine times instead of twice on more
# than 2 hosts.
#
# No result depends on time. The network is disturbed when all ranks have completed a call, and the
# calls continue until the ranks have noticed. Limits only end jobs that hang.
set -u
bin=$1
shift
export CCL_COMM_ID=10.0.0.1:4711 CCL_SOCKET_IFNAME=eth0 CCL_TIMEOUT=200 CCL_INIT_TIMEOUT=200
export CCL_BOOTSTRAP_KEEPALIVE=60  # under load all hosts together can be silent for seconds
full=
if [ "${1:-}" = full ]; then full=1; shift; fi
limit=300  # seconds of one job
failed=0 cases=0 harm=
: >/run/results >/run/failures >/run/checked

# job N CMD...: runs one rank on each of N hosts. Their statuses are in $statuses, in order.
job() {
  local n=$1 i pids=()
  shift
  for ((i = 0; i < n; i++)); do
    RANK=$i WORLD_SIZE=$n vh $i timeout -k 2 $limit "$@" >/run/out.$i 2>&1 &
    pids+=($!)
  done
  statuses=
  for ((i = 0; i < n; i++)); do
    wait ${pids[i]}
    statuses+=" $?"
  done
  if [ -n "$harm" ]; then  # before it can affect the next case
    kill $harm
    wait $harm
    harm=
  fi 2>/dev/null
  sed -n 's/.*: \([0-9]*\) calls checked.*/\1/p' /run/out.0 >>/run/checked
  seconds=$((SECONDS - began))
}
begin() {
  if [ ${#wanted[@]} -gt 0 ]; then
    [[ " ${wanted[*]} " == *" $1 "* ]] || return 1
  elif [ "${2:-}" = full ] && [ -z "$full" ]; then
    return 1
  fi
  case=$1 began=$SECONDS
  rm -f /run/out.* /run/harmed
  harms=
}
# check_job STATUSES [TEXT]: checks the last job; its output must contain TEXT.
check_job() {
  local line why= out
  cases=$((cases + 1))
  [[ "$statuses" == $1 ]] || why="statuses$statuses instead of $1"
  [ -z "${2:-}" ] || grep -q "$2" /run/out.* || why+="${why:+, and }no \"$2\""
  [ -z "$harms" ] || [ -e /run/harmed ] || why+="${why:+, and }the ranks were never under way"
  if [ -z "$why" ]; then
    line="ok   $case ($seconds s)"
  else
    failed=$((failed + 1))
    line="FAIL $case: $why ($seconds s)"
    {
      echo "== $case"
      for out in /run/out.*; do
        echo "-- rank ${out##*.}, its last lines"
        tail -n 12 "$out" | cut -c 1-600
      done
    } >>/run/failures
  fi
  echo "$line" | tee -a /run/results
}
# Disturbs the network when the ranks are at work.
meanwhile() {
  harms=1
  (
    until grep -qs "under way" /run/out.0; do sleep 0.1; done
    touch /run/harmed
    eval "$1"
  ) &
  harm=$!
}
netem() { # ARGS HOST...
  local i
  for i in "${@:2}"; do tc qdisc add dev rdma$i root netem $1; done
}
no_netem() {
  local i
  for i in "$@"; do tc qdisc del dev rdma$i root; done
}
one_device='CCL_IB_HCA==rxe0,rxe1,rxe2,rxe3,rxe4,rxe5,rxe6,rxe7'
split='CCL_IB_QPS_PER_CONNECTION=2 CCL_IB_SPLIT_DATA_ON_QPS=1'
sparse=SPARSE=1
of_4_hosts=LL,Simple  # as names of test cases
[ -z "$full" ] || { sparse= of_4_hosts=; }
hosts=$bin/ccl.vm.hosts endure=$bin/ccl.vm.endure
wanted=("$@")

begin collectives_2_hosts && { job 2 env $one_device $hosts; check_job " 0 0" "calls checked"; }
begin collectives_2_hosts_split full && { job 2 env $sparse $split $hosts; check_job " 0 0" "calls checked"; }
begin collectives_4_hosts && { job 4 env $sparse $one_device $hosts $of_4_hosts; check_job " 0 0 0 0" "calls checked"; }
for proto in Simple LL LL128; do
  begin collectives_8_hosts_$proto full && { job 8 env $sparse $one_device $hosts $proto; check_job " 0 0 0 0 0 0 0 0" "calls checked"; }
done
begin levels && {  # 2 hosts of 2 ranks each, by CCL_HOSTID
  job 4 bash -c "CCL_HOSTID=pair\$((RANK / 2)) exec env $one_device $hosts levels"
  check_job " 0 0 0 0" "calls checked"
}
begin queue_pairs_in_turn && { job 2 env $one_device CCL_IB_QPS_PER_CONNECTION=4 $endure 20 300000; check_job " 0 0"; }
begin split_on_queue_pairs && { job 2 env $one_device CCL_IB_QPS_PER_CONNECTION=3 CCL_IB_SPLIT_DATA_ON_QPS=1 $endure 20 300000; check_job " 0 0"; }
begin two_devices && { job 2 $endure 20 1000000; check_job " 0 0"; }
begin two_devices_split_announced && { job 2 env $split CCL_IB_ADAPTIVE_ROUTING=1 CCL_IB_AR_THRESHOLD=1000 $endure 20 1000000; check_job " 0 0"; }
begin devices_not_merged && { job 2 env CCL_IB_MERGE_NICS=0 $endure 20 1000000; check_job " 0 0"; }
begin registered_buffers && { job 2 env BYTES=4194304 CALLS=1 "$bin/ccl.vm.registered"; check_job " 0 0" "registered: both: .* 0\.[0-4][0-9] of the bytes through slots"; }
begin ipv6_gid && { job 2 env $one_device CCL_IB_ADDR_FAMILY=AF_INET6 $endure 5 100000; check_job " 0 0"; }
begin two_and_one_devices && { job 2 env CCL_IB_HCA==rxe0,rxe1,rxe1_1 $endure 10 1000000; check_job " 0 0"; }
begin queue_pair_in_error && { job 2 env $one_device $endure 10 300000 repair 5; check_job " 0 0" "goes on over"; }
begin loss_and_delay && {
  netem "delay 1ms loss 0.2%" 0 1
  job 2 env $one_device CCL_IB_TIMEOUT=16 $endure 5 300000
  no_netem 0 1
  check_job " 0 0"
}
begin much_loss && {
  netem "delay 5ms loss 1%" 0 1 2 3
  job 4 env $one_device CCL_IB_TIMEOUT=16 $endure 5 300000
  no_netem 0 1 2 3
  check_job " 0 0 0 0"
}
# Reliable connections answer this by sending everything again, and the job ends in either result.
begin much_reordering full && {
  netem "delay 5ms 2ms loss 1%" 0 1
  CCL_TIMEOUT=20 job 2 env $one_device CCL_IB_TIMEOUT=16 $endure 5 300000
  no_netem 0 1
  check_job " [03] [03]"
}
# Delay towards each host, so that an answer arrives after 10 ms. TCP sends data of lost packets
# again.
tcp_over_bad_links() {
  local n=$1 expected=$2 i
  for ((i = 0; i < n; i++)); do tc qdisc add dev h$i root netem delay 5ms loss 1%; done
  limit=400 job "$n" env VM_TRANSPORT=socket ${3:-} "$bin/ccl.vm.hosts"
  for ((i = 0; i < n; i++)); do
    tc -s qdisc show dev h$i | awk -v host=$i '/dropped/ { print "host", host ": " $4, "packets,", $7, "lost" }' | tr -d ,
    tc qdisc del dev h$i root
  done
  check_job "$expected" "calls checked"
}
begin tcp_loss_and_delay_2_hosts && tcp_over_bad_links 2 " 0 0" $sparse
begin tcp_loss_and_delay_4_hosts full && tcp_over_bad_links 4 " 0 0 0 0" SPARSE=1
begin one_of_two_devices_down && {
  meanwhile "ip link set rdma1_1 down"
  job 2 env CCL_IB_TIMEOUT=14 $endure 10 1000000 repair
  ip link set rdma1_1 up
  check_job " 0 0" "goes on over"
}
begin device_down_of_one_in_8 full && {
  meanwhile "ip link set rdma5_1 down"
  job 8 env CCL_IB_TIMEOUT=14 $endure 5 300000 repair
  ip link set rdma5_1 up
  check_job " 0 0 0 0 0 0 0 0" "goes on over"
}
begin only_device_of_one_in_8_down full && {
  meanwhile "ip link set rdma5 down"
  job 8 env $one_device CCL_IB_TIMEOUT=14 $endure 0 300000 failure
  ip link set rdma5 up
  check_job " 3 3 3 3 3 3 3 3"
}
begin only_device_down && {
  meanwhile "ip link set rdma1 down"
  job 2 env $one_device CCL_IB_TIMEOUT=14 $endure 0 300000 failure
  ip link set rdma1 up
  check_job " 3 3"
}
begin link_swallows_everything && {
  meanwhile "tc qdisc add dev rdma1 root netem loss 100%"
  job 2 env $one_device CCL_IB_TIMEOUT=14 CCL_IB_RETRY_CNT=3 $endure 0 300000 failure
  tc qdisc del dev rdma1 root
  check_job " 3 3" "IBV_WC_RETRY_EXC_ERR"
}
begin rank_killed && {
  meanwhile "pkill -9 --ns $(</run/vh/1.pid) --nslist net ccl.vm.endure"
  job 2 env $one_device $endure 0 300000 failure
  check_job " 3 137"
}
if [ $failed != 0 ]; then head -c 30000 /run/failures; fi
echo "all results:"
cat /run/results
echo "$(awk '{ sum += $1 } END { print sum + 0 }' /run/checked) collective calls checked"
echo "$((cases - failed)) of $cases cases as expected"
exit $((failed > 0))
