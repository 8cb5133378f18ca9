#!/usr/bin/env python3
"""Trains a transformer by DDP, FSDP2 and FSDP2 in bfloat16, over ccl's library and over NVIDIA's in turns.

    training.py LIBNCCL [--ranks 2] [--steps 100] [--rounds 3]    one GPU for each rank
    training.py --cpu [...]      CPU ranks: the backend ccl_comm, and gloo beside it

Prints the median time of a step for each, and whether losses, norms of gradients and final weights
are equal to the last digit. The exit code is 1 if those of two libraries differ, or losses do not fall.
LIBNCCL is ccl's libnccl.so.2, which is preloaded below PyTorch's backend nccl.
"""

import argparse
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time

KINDS = ("ddp", "fsdp2", "fsdp2 bfloat16")
CPU_KINDS = KINDS[:2]  # gloo moves no bfloat16
WARM = 10  # steps that count for no time


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", nargs="?", help="ccl's libnccl.so.2")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=0, help="of the model; default: 320, on CPUs 64")
    parser.add_argument("--side", help=argparse.SUPPRESS)  # of a rank
    given = parser.parse_args()
    given.kinds = CPU_KINDS if given.cpu else KINDS
    given.width = given.width or (64 if given.cpu else 320)
    if not given.cpu and not given.library and not given.side:
        parser.error("name ccl's libnccl.so.2, or pass --cpu")
    return given


# A rank.


def model(width, device):
    import torch
    from torch.nn import functional

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
            self.attention, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (p.unflatten(-1, (4, -1)).transpose(1, 2) for p in self.attention(self.norms[0](x)).chunk(3, -1))
            scores = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)  # in one order of sums
            x = x + self.out((scores @ v).transpose(1, 2).flatten(2))
            return x + self.down(functional.gelu(self.up(self.norms[1](x))))

    torch.manual_seed(1)
    return torch.nn.Sequential(*(Block() for _ in range(8)), torch.nn.Linear(width, width)).to(device)


def wrapped(kind, net, device, ranks):
    import torch

    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=4)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy()
    if kind.endswith("bfloat16"):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh(device.type, (ranks,))
    for part in [*net, net]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    return net


def whole(value):
    """Returns the whole tensor of one that is divided among the ranks."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def train(kind, given, device, rank, ranks):
    import torch

    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize()

    net = wrapped(kind, model(given.width, device), device, ranks)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(100 + rank)
    inputs = [torch.randn(8, 64, given.width, generator=data).to(device) for _ in range(4)]
    losses, norms, times = [], [], []
    for step in range(given.steps):
        wait()
        begin = time.perf_counter()
        batch = inputs[step % 4]
        loss = (net(batch).float() - batch.flip(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        wait()
        times.append((time.perf_counter() - begin) * 1e3)
        losses.append(loss.item())
        norms.append(whole(norm).item())
    bits = hashlib.sha256()
    for value in net.parameters():
        bits.update(whole(value.detach()).cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return {"losses": losses, "norms": norms, "weights": bits.hexdigest(), "ms": times[WARM:] or times}


def be_rank(given):
    import torch
    import torch.distributed as dist

    rank, ranks, device = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), torch.device("cpu")
    if given.cpu:
        torch.set_num_threads(1)
        if given.side == "ccl":
            import ccl.torch  # noqa: F401
        dist.init_process_group("ccl_comm" if given.side == "ccl" else "gloo")
    else:
        torch.use_deterministic_algorithms(True)
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    results = {kind: train(kind, given, device, rank, ranks) for kind in given.kinds}
    if rank == 0:
        print(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


# The comparison.


def run(given, side):
    """Runs the ranks over one library. Returns what rank 0 printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # NVLink multicast can put the GPUs of a shared host out of service.
    environment = os.environ | {"NCCL_NVLS_ENABLE": "0", "WORLD_SIZE": str(given.ranks), "MASTER_ADDR": "127.0.0.1",
                                "MASTER_PORT": str(port), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # fmt: skip
    if side == "ccl" and not given.cpu:
        environment["LD_PRELOAD"] = os.path.abspath(given.library)
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--side", side]
    ranks = [subprocess.Popen(command, env=environment | {"RANK": str(r), "LOCAL_RANK": str(r)},
                              stdout=subprocess.PIPE if r == 0 else subprocess.DEVNULL)
             for r in range(given.ranks)]  # fmt: skip
    said = ranks[0].communicate()[0]
    if any(rank.wait() for rank in ranks):
        sys.exit(f"a rank over {side} has failed: {[rank.returncode for rank in ranks]}")
    return json.loads(said.decode().splitlines()[-1])


def difference(one, other):
    """Returns what differs first, or None."""
    for name in ("losses", "norms"):
        for step, (a, b) in enumerate(zip(one[name], other[name])):
            if a != b:
                return f"{name} of step {step}: {a!r} and {b!r}"
    return None if one["weights"] == other["weights"] else "weights"


def main():
    given = parse()
    if given.side:
        be_rank(given)
        return 0
    sides = ("ccl", "gloo" if given.cpu else "nccl")
    results = {side: [] for side in sides}
    for _ in range(given.rounds):
        for side in sides:
            results[side].append(run(given, side))
    bad = 0
    for kind in given.kinds:
        ms = {side: statistics.median(t for one in results[side] for t in one[kind]["ms"]) for side in sides}
        all_of = [one[kind] for side in sides for one in results[side]]
        differs = next((d for d in (difference(all_of[0], one) for one in all_of[1:]) if d), None)
        losses = all_of[0]["losses"]
        falls = losses[-1] < losses[0] / 2
        bad += bool(differs) or not falls
        print(f"{kind}: {', '.join(f'{side} {ms[side]:.2f} ms' for side in sides)} a step; {given.steps} steps, "
              f"losses {losses[0]:.9g} to {losses[-1]:.9g}, {'they do not fall, ' if not falls else ''}"
              f"{'different: ' + differs if differs else 'losses, norms and weights equal'}", flush=True)  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
