"""One of two ranks, whose rank 1 ends with an exception while a call of it waits for rank 0."""

import torch
import torch.distributed as dist

import ccl.torch

dist.init_process_group("ccl_comm")
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 1:
    work = dist.irecv(torch.ones(1), 0)
    sums = dist.all_reduce(torch.ones(1), async_op=True)
    raise KeyError("mine")
try:
    dist.barrier()
    dist.recv(torch.ones(1), 1)
except ccl.AbortedError as error:
    print(error)
else:
    raise AssertionError("rank 1 has gone, and a call succeeded")
