#!/usr/bin/env python3
"""Calls per second from Python: all-reduce of float32 in place on CPU ranks, which are processes.

    calls.py [--ranks 2] [--bytes 8 4096 1048576] [--rival gloo]

ccl takes a NumPy array. With --rival gloo it takes tensors too, alone and as torch.distributed's
backend ccl_comm, beside gloo in the same processes, in turns. Prints the median of the rounds, of
the slowest rank. Checks the result of each size.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time


def calls_in(seconds, call, barrier):
    """Returns the number of calls that take about `seconds`."""
    call()
    barrier()
    begin, calls = time.perf_counter(), 0
    while calls < 20:
        call()
        calls += 1
    calls = max(20, int(calls * seconds / (time.perf_counter() - begin)))
    return calls


def timed(call, barrier, calls):
    barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def rank(given):
    import ccl
    import numpy as np

    comm = ccl.Communicator.from_env()
    dist = torch = None
    if given.rival:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}",
                                rank=comm.rank, world_size=comm.ranks)  # fmt: skip
        import ccl.torch

        ours_in_torch = dist.new_group(backend=ccl.torch.NAME)
    for bytes in given.bytes:
        ours = np.ones(bytes // 4, "float32")
        calls = {"ccl, NumPy": lambda: comm.all_reduce(ours, "max", out=ours)}
        if dist:
            tensor = torch.ones(bytes // 4)
            calls["ccl, torch"] = lambda: comm.all_reduce(tensor, "max", out=tensor)
            calls["ccl_comm"] = lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX, ours_in_torch)
            calls["ccl_comm, async_op"] = lambda: dist.all_reduce(
                tensor, dist.ReduceOp.MAX, ours_in_torch, async_op=True
            ).wait()
            calls["gloo, torch"] = lambda: dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        counts = {}
        for name, call in calls.items():
            mine = np.array([calls_in(0.2, call, comm.barrier)])
            counts[name] = int(comm.broadcast(mine, root=0)[0])
        times = {name: [] for name in calls}
        for _ in range(given.rounds):
            for name, call in calls.items():
                worst = np.array([timed(call, comm.barrier, counts[name])])
                times[name].append(float(comm.all_reduce(worst, "max")[0]))
        assert (ours == 1).all()
        for name, all in times.items() if comm.rank == 0 else ():
            us = statistics.median(all) * 1e6
            print(f"| {bytes} | {name} | {us:.1f} | {1e6 / us:.0f} | {min(all) * 1e6:.1f} to "
                  f"{max(all) * 1e6:.1f} |", flush=True)  # fmt: skip
    comm.finalize()
    if dist:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", type=int, nargs="+", default=[8, 4096, 65536, 1 << 20])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rival", choices=["gloo"])
    given = parser.parse_args()
    if "RANK" in os.environ:
        rank(given)
        return 0
    print("| bytes | library, buffer | us a call | calls a second | rounds, us |\n|---|---|---|---|---|",
          flush=True)  # fmt: skip
    port = 20000 + os.getpid() % 20000
    shared = {"WORLD_SIZE": str(given.ranks), "CCL_COMM_ID": f"127.0.0.1:{port}",
              "GLOO_PORT": str(port + 1), "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | shared | {"RANK": str(r)})
        for r in range(given.ranks)
    ]
    return max(process.wait() != 0 for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
