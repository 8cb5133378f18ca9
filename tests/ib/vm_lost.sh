#!/usr/bin/env bash
# vm_lost.sh PROGRAMS [STEPS [SEED]]: runs inside a virtual machine with RDMA devices. Processes of
# jobs over RDMA are killed or stopped at random steps.
set -u
export CAMPAIGN_RDMA=1 CAMPAIGN_AT_ONCE=2 CAMPAIGN_LIMIT=20 CAMPAIGN_STEPS=${2:-100}
[ -z "${3:-}" ] || export CAMPAIGN_SEED=$3
exec "$1/../ccl.test.comm.lost_process"
