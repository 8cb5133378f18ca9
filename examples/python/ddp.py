"""Data-parallel training on CPU ranks: torchrun --nproc-per-node 2 ddp.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ccl.torch  # registers the backend "ccl_comm"

dist.init_process_group("ccl_comm")
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)  # the weights to find, and the data of all ranks
weights = torch.randn(16, 1)
data = torch.randn(64 * ranks, 16)
mine = data[64 * rank : 64 * (rank + 1)]

model = DistributedDataParallel(torch.nn.Linear(16, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(200):
    loss = (model(mine) - mine @ weights).square().mean()
    optimizer.zero_grad()
    loss.backward()  # averages the gradients of all ranks
    optimizer.step()

dist.all_reduce(loss.detach(), dist.ReduceOp.AVG)
if rank == 0:
    print(f"loss after 200 steps: {loss.item():.2e}")
assert loss.item() < 1e-3, loss
dist.destroy_process_group()
