#!/usr/bin/env bash
# over_tcp.sh BUILD_DIR [HOSTS [RATE]]: compares ccl's collectives on CPU ranks with Open MPI's and
# with iperf3, over TCP. Each of HOSTS (2) network namespaces holds one rank. Their links send at
# RATE (10gbit; none: the copy speed of the cores). It needs root, Open MPI, iperf3 and iproute2.
#
# Prints a table of medians of five rounds in turns, and writes its lines to the file OVER_TCP_JSON.
# OVER_TCP_OPS, OVER_TCP_SIZES ("8 67108864") and OVER_TCP_ALL=all narrow or widen the run.
# OVER_TCP_MCA adds settings of Open MPI. Settings CCL_... reach the ranks.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${OVER_TCP_INSIDE:-}" = "" ]; then
  export OVER_TCP_INSIDE=1
  # Namespaces have no names outside, so they disappear with their last process.
  exec unshare --net --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
build=$(realpath "$1") hosts=${2:-2} rate=${3:-10gbit}
read -r begin end <<<"${OVER_TCP_SIZES:-8 67108864}"
ops=${OVER_TCP_OPS:-broadcast,reduce,send_recv,all_reduce,all_gather,reduce_scatter,all_to_all}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
ip address add 10.0.0.254/24 dev br0
cp /etc/hosts "$work/hosts"
names=()
for ((i = 0; i < hosts; i++)); do
  names+=("h$i")
  echo "10.0.0.$((i + 1)) h$i" >>"$work/hosts"
  ip netns add "h$i"
  ip link add "v$i" type veth peer name eth0 netns "h$i"
  ip link set "v$i" master br0 up
  ip -n "h$i" address add "10.0.0.$((i + 1))/24" dev eth0
  ip -n "h$i" link set lo up
  ip -n "h$i" link set eth0 up
  [ "$rate" = none ] || ip netns exec "h$i" tc qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 20ms
done
mount --bind "$work/hosts" /etc/hosts
cat >"$work/rsh" <<'RSH'
#!/bin/bash
host=$1
shift
exec ip netns exec "$host" unshare -u bash -c "hostname $host; $*"
RSH
chmod +x "$work/rsh"

iperf() {  # bytes of one write: the maximum of ccl's system calls
  ip netns exec h1 iperf3 -s -1 >/dev/null &
  local server=$!
  sleep 0.3
  ip netns exec h0 iperf3 -c 10.0.0.2 -t 2 -O 0.5 -l 1M -J "$@" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["end"]["sum_received"]["bits_per_second"])'
  wait $server
}
list=$(IFS=, && echo "${names[*]}")
passed=()
for name in $(compgen -e CCL_); do passed+=(-x "$name"); done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
lines=${OVER_TCP_JSON:-$work/lines}
: >"$lines"
echo '{"side": "iperf3", "bits": '"$(iperf)"'}' >>"$lines"
for op in ${ops//,/ }; do
  # Ranks are not bound: each host would bind its rank to the first core. Open MPI yields while it
  # waits; without that a message takes milliseconds, because hosts share cores.
  # shellcheck disable=SC2086
  mpirun --bind-to none -H "$list" --mca plm_rsh_agent "$work/rsh" --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include 10.0.0.0/24 \
    --mca oob_tcp_if_include 10.0.0.0/24 --mca mpi_yield_when_idle 1 ${OVER_TCP_MCA:-} -x CCL_COMM_ID=10.0.0.1:4711 -x CCL_SOCKET_IFNAME=eth0 \
    -x CCL_TIMEOUT=20 "${passed[@]}" "$build/benchmarks/ccl_over_tcp" "$op" "$begin" "$end" "${OVER_TCP_ROUNDS:-5}" ${OVER_TCP_ALL:-} >>"$lines"
  echo '{"side": "iperf3", "bits": '"$(iperf)"'}' >>"$lines"
done
python3 "$here/over_tcp_table.py" "$lines"
