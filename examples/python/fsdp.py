"""Training with sharded weights on CPU ranks: torchrun --nproc-per-node 2 fsdp.py"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import ccl.torch  # registers the backend "ccl_comm"

dist.init_process_group("ccl_comm")
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
target, model = (
    torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)) for _ in range(2)
)
data = torch.randn(64 * ranks, 16)
mine = data[64 * rank : 64 * (rank + 1)]
goal = target(mine).detach()

mesh = init_device_mesh("cpu", (ranks,))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)  # each rank keeps 1 / ranks of the weights
held = sum(p.to_local().numel() for p in model.parameters())
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
losses = []
for step in range(100):
    loss = (model(mine) - goal).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

if rank == 0:
    print(f"{held} of {sum(p.numel() for p in model.parameters())} weights on rank 0, loss "
          f"{losses[0]:.3f} to {losses[-1]:.4f}")  # fmt: skip
assert losses[-1] < losses[0] / 10, losses
dist.destroy_process_group()
