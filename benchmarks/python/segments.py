#!/usr/bin/env python3
"""Times NCCL's collectives of PyTorch on buffers of its allocator, and checks them while segments
grow and shrink.

PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True LD_PRELOAD=.../libnccl.so.2 \
    torchrun --nproc-per-node 2 benchmarks/python/segments.py

Ranks take the GPU of their local rank, or share the last one (CCL_MULTI_RANK_GPU_ENABLE=1).
"""

import os
import statistics
import time

import torch
import torch.distributed as dist

MIB = 1 << 20
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def median_us(call, repeats=12):
    times = []
    for _ in range(repeats):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def time_calls(mib):
    count = mib * MIB // 4
    share = count // RANKS
    mine = torch.full((share,), float(RANK), device="cuda")
    gathered = torch.empty(share * RANKS, device="cuda")
    sent = torch.arange(share * RANKS, device="cuda", dtype=torch.float32) + RANK
    received = torch.empty(share * RANKS, device="cuda")
    for _ in range(3):
        dist.all_gather_into_tensor(gathered, mine)
        dist.all_to_all_single(received, sent)
        torch.cuda.synchronize()
        time.sleep(0.3)  # peers map the buffers
    ranks = torch.arange(RANKS, device="cuda", dtype=torch.float32).repeat_interleave(share)
    place = torch.arange(RANK * share, (RANK + 1) * share, device="cuda", dtype=torch.float32)
    wrong = int((gathered != ranks).sum()) + int((received != place.repeat(RANKS) + ranks).sum())
    calls = {
        "all_gather": lambda: dist.all_gather_into_tensor(gathered, mine),
        "all_to_all": lambda: dist.all_to_all_single(received, sent),
        "broadcast": lambda: dist.broadcast(gathered, 0),
    }
    times = ", ".join(f"{name} {median_us(call):.0f} us" for name, call in calls.items())
    if RANK == 0:
        print(f"{mib} MiB: {times}", flush=True)
    return wrong


def change_sizes(turns):
    torch.manual_seed(7)  # the same sizes on all ranks
    wrong = 0
    for turn in range(turns):
        count = int(torch.randint(1 << 18, 12 << 20, (1,)))
        mine = torch.full((count,), float(turn + RANK), device="cuda")
        gathered = torch.empty(count * RANKS, device="cuda")
        dist.all_gather_into_tensor(gathered, mine)
        ranks = torch.arange(RANKS, device="cuda", dtype=torch.float32).repeat_interleave(count)
        wrong += int((gathered != turn + ranks).sum())
        dist.all_reduce(mine)
        wrong += int((mine != RANKS * turn + RANKS * (RANKS - 1) // 2).sum())
        if turn % 17 == 16:
            del mine, gathered, ranks
            torch.cuda.empty_cache()
    return wrong


def main():
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # multicast can put the GPUs of a shared host out of service
    device = min(int(os.environ["LOCAL_RANK"]), torch.cuda.device_count() - 1)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    wrong = sum(time_calls(mib) for mib in (16, 96)) + change_sizes(120)
    print(f"rank {RANK}: {wrong} elements are wrong", flush=True)
    dist.destroy_process_group()
    raise SystemExit(wrong != 0)


if __name__ == "__main__":
    main()
