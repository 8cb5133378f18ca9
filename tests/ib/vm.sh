#!/usr/bin/env bash
# IbTransport between hosts of a virtual machine with software RDMA:
#   vm.sh BUILD_DIR [full | CASE...]         collectives, and networks that are disturbed
#   vm.sh BUILD_DIR devices [full]           four devices for each host
#   vm.sh BUILD_DIR faults [CASE]            faults that the watchdog must name
#   vm.sh BUILD_DIR lost [STEPS [SEED]]      processes that are killed or stopped, on one host
# Exits with 77 (skipped) if that machine cannot be started; "tests/ib/rxe-vm.sh -p BUILD_DIR/vm"
# prepares it.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
if [ ! -e "$build/vm/ok2" ]; then
  echo "SKIP: no virtual machine in $build/vm (tests/ib/rxe-vm.sh -p $build/vm makes it: qemu and Debian's kernel)"
  exit 77
fi
limit=840  # seconds, below that of the test
if [ "${!#}" = full ]; then limit=3000; fi
cd "$build"
machine=(-n 8 -d 2) jobs=vm_jobs.sh
if [ "${2:-}" = devices ]; then
  machine=(-n 4 -d 4) jobs=vm_devices.sh
  shift
elif [ "${2:-}" = faults ]; then
  machine=(-n 4) jobs=vm_faults.sh limit=3000
  shift
elif [ "${2:-}" = lost ]; then
  machine=(-n 1 -d 2) jobs=vm_lost.sh limit=3000
  shift
fi
bash "$here/rxe-vm.sh" "${machine[@]}" -s "$build" -s "$here" -t "$limit" "$build/vm" bash "$here/$jobs" "$build/tests/ib" "${@:2}"
status=$?
if [ $status = 125 ]; then
  echo "SKIP: the virtual machine did not start (see $build/vm/console.log)"
  exit 77
fi
exit $status
