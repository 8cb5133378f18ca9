"""Three process groups of all ranks at once, on streams of their own: DDP on the first, all-to-alls
on the second, all-reduces on the third. Prints the time of a step, wrong elements and the losses.

    torchrun --nproc-per-node 2 process_groups.py [steps]

LD_PRELOAD names the libnccl.so.2 that is measured.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def numbers(begin, end):
    return torch.arange(begin, end, device="cuda", dtype=torch.float32)


def main():
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # multicast can put the GPUs of a shared host out of service
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    torch.manual_seed(1)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    groups = [dist.new_group(list(range(world))) for _ in range(3)]
    streams = [torch.cuda.Stream() for _ in range(3)]
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
    ddp = DistributedDataParallel(model, process_group=groups[0], bucket_cap_mb=8)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    count = 1 << 20
    sent = numbers(0, count * world) + rank
    received = torch.empty_like(sent)
    large = torch.full((1 << 22,), float(rank + 1), device="cuda")
    small = torch.full((1000,), float(rank + 1), device="cuda")
    total = world * (world + 1) / 2
    wrong, losses = 0, []
    torch.cuda.synchronize()
    start = time.time()
    for step in range(steps):
        with torch.cuda.stream(streams[1]):
            for _ in range(3):
                dist.all_to_all_single(received, sent, group=groups[1])
        with torch.cuda.stream(streams[2]):
            sums = [large.clone(), small.clone()]
            for one in sums:
                dist.all_reduce(one, group=groups[2])
        seed = torch.Generator().manual_seed(step * world + rank)
        loss = ddp(torch.randn(256, 1024, generator=seed).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            torch.cuda.synchronize()
            mine = numbers(count * rank, count * (rank + 1))
            wanted = torch.cat([mine + p for p in range(world)])
            wrong += int((received != wanted).sum())
            wrong += sum(int((one != total).sum()) for one in sums)
            losses.append(loss.item())
    torch.cuda.synchronize()
    took = time.time() - start
    weights = torch.cat([p.detach().flatten() for p in ddp.parameters()])
    all_weights = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(all_weights, weights)
    same = all(torch.equal(all_weights[0], one) for one in all_weights)
    if rank == 0:
        print(
            f"{steps} steps, {took / steps * 1e3:.2f} ms a step, {wrong} wrong, "
            f"weights {'equal' if same else 'differ'}, sum {weights.double().sum().item():.17g}, "
            f"losses {losses[0]:.9g} to {losses[-1]:.9g}"
        )
    dist.destroy_process_group()


main()
