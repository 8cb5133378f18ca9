#!/usr/bin/env bash
# vm_faults.sh PROGRAMS [CASE]: runs inside a virtual machine with four hosts. Faults of jobs, and
# which rank and cause the watchdog names.
set -u
export CCL_SOCKET_IFNAME=eth0
exec "$1/ccl.vm.faults" "${@:2}"
