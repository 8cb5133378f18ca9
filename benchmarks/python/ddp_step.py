#!/usr/bin/env python3
"""Times steps of DDP on CUDA tensors, with the backend ccl_comm and with NCCL, in turns.

torchrun --nproc-per-node 2 benchmarks/python/ddp_step.py [STEPS]

A step is the forward and the backward pass of a small model, so the host is the limit. "none" is the
model without DDP. The last lines say what the backend's Python code takes of a step, by function.
"""

import os
import sys
import time

import ccl.torch  # noqa: F401  the backend ccl_comm
import torch
import torch.distributed as dist
from ccl.torch import _gpu_engine, _gpu_work, _group

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
WARM = 20
TIMED = ((_group.ProcessGroup, "allreduce"), (_gpu_engine.GpuEngine, "_begun"), (_gpu_work.GpuWork, "get_future"))


def model():
    torch.manual_seed(1)
    linear, gelu = torch.nn.Linear, torch.nn.GELU
    return torch.nn.Sequential(linear(256, 1024), gelu(), linear(1024, 1024), gelu(), linear(1024, 256)).cuda()


def step_ms(group):
    net = model()
    if group is not None:
        net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[torch.cuda.current_device()],
                                                        process_group=group)  # fmt: skip
    data = torch.randn(64, 256, device="cuda")
    for step in range(WARM + STEPS):
        if step == WARM:
            torch.cuda.synchronize()
            dist.barrier()
            begin = time.perf_counter()
        net(data).square().mean().backward()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS * 1e3


def time_in(owner, name, spent):
    """Adds the nanoseconds of each call of a method to `spent`."""
    method = getattr(owner, name)

    def timed(*arguments, **named):
        begin = time.perf_counter_ns()
        try:
            return method(*arguments, **named)
        finally:
            spent.append(time.perf_counter_ns() - begin)

    setattr(owner, name, timed)


def main():
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # multicast can put the GPUs of a shared host out of service
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("ccl_comm")
    groups = {"none": None, "ccl_comm": dist.group.WORLD, "nccl": dist.new_group(backend="nccl")}
    for _ in range(3):
        line = ", ".join(f"{name} {step_ms(group):.3f}" for name, group in groups.items())
        if rank == 0:
            print(f"step, ms: {line}", flush=True)
    spent = {name: [] for _, name in TIMED}
    for owner, name in TIMED:
        time_in(owner, name, spent[name])
    step_ms(groups["ccl_comm"])
    if rank == 0:
        for name, all in spent.items():
            print(f"{name}: {len(all)} calls, {sum(all) / max(1, len(all)) / 1e3:.1f} us each", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
