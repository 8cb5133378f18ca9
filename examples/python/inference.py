"""All-reduces of tensor-parallel inference: torchrun --nproc-per-node 2 inference.py

`AllReduce` has the methods of the custom all-reduce of vLLM and SGLang, so that a plug-in can put
it in its place. Without a GPU the example runs on CPU ranks.
"""

import contextlib
import os

import torch
import torch.distributed as dist

import ccl


class AllReduce:
    """All-reduces out of place, up to a size.

    `cpu_group` is the engine's group of the same ranks, which carries the id of the communicator.
    """

    def __init__(self, cpu_group, device, max_size=8 << 20):
        rank, ranks = dist.get_rank(cpu_group), dist.get_world_size(cpu_group)
        id = [ccl.UniqueId.create().bytes if rank == 0 else None]
        dist.broadcast_object_list(id, src=dist.get_global_rank(cpu_group, 0), group=cpu_group)
        number = device.index if device.type == "cuda" else None
        self.comm = ccl.Communicator(ccl.UniqueId(id[0]), rank, ranks, device=number)
        self.max_size, self.disabled = max_size, False

    def should_custom_ar(self, inp):
        """True if a call takes `inp`. The answer must be the same on all ranks."""
        return not self.disabled and inp.is_contiguous() and inp.nbytes <= self.max_size

    def custom_all_reduce(self, inp):
        """Returns the sum of all ranks, or None if the engine is to take its other way."""
        if not self.should_custom_ar(inp):
            return None
        out = torch.empty_like(inp)
        stream = torch.cuda.current_stream() if inp.is_cuda else None
        return self.comm.all_reduce(inp, out=out, stream=stream)

    @contextlib.contextmanager
    def capture(self):
        """Surrounds a capture of graphs. ccl takes any memory, so nothing is registered."""
        yield

    def close(self):
        if not self.disabled:
            self.disabled = True
            self.comm.finalize()


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
        torch.cuda.set_device(device)
    reducer = AllReduce(dist.group.WORLD, device)
    for rows in (1, 2, 16, 512):  # of decode steps
        partial = torch.full((rows, 1024), rank + 1.0, device=device)
        with reducer.capture():
            total = reducer.custom_all_reduce(partial)
        assert (total == ranks * (ranks + 1) / 2).all() and (partial == rank + 1).all()
    large = torch.ones(4096, 1024, device=device)
    assert reducer.custom_all_reduce(large) is None  # the engine's own way
    if rank == 0:
        print(f"{ranks} ranks on {device.type}: sums of 1 to 512 rows are right")
    reducer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
