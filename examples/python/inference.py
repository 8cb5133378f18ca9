"""A step of tensor-parallel inference: torchrun --nproc-per-node 2 inference.py

Each rank has a part of the weights of four layers. A layer ends with an all-reduce, the addition of
the residual and RMSNorm, which are one call. On GPUs it is one kernel, and the step is a CUDA graph.
Without a GPU the example runs on CPU ranks. The results are compared with those of whole weights.
"""

import os
import time

import torch
import torch.distributed as dist

from ccl.torch.inference import AllReduce

LAYERS, HIDDEN, INNER, EPSILON = 4, 512, 2048, 1e-6


def weights(device, dtype):
    """The whole weights of the layers, equal on all ranks."""
    torch.manual_seed(1)
    parts = [(torch.randn(INNER, HIDDEN) / HIDDEN**0.5, torch.randn(HIDDEN, INNER) / INNER**0.5,
              torch.rand(HIDDEN) + 0.5) for _ in range(LAYERS)]  # fmt: skip
    return [[w.to(dtype).to(device) for w in layer] for layer in parts]


def whole_step(layers, normed, residual):
    for up, down, gain in layers:
        residual = residual + torch.relu(normed @ up.T) @ down.T
        normed = torch.nn.functional.rms_norm(residual, (HIDDEN,), gain, EPSILON)
    return normed


class Sharded:
    """The layers with this rank's rows of `up` and columns of `down`."""

    def __init__(self, layers, reducer):
        rank, ranks = reducer.rank, reducer.world_size
        self.reducer = reducer
        self.layers = [(up.chunk(ranks)[rank], down.chunk(ranks, 1)[rank].contiguous(), gain)
                       for up, down, gain in layers]  # fmt: skip

    def step(self, normed, residual):
        for up, down, gain in self.layers:
            partial = torch.relu(normed @ up.T) @ down.T
            normed, residual = self.reducer.add_rms_norm(partial, residual, gain, EPSILON)
        return normed


def as_graph(step, *inputs):
    """Returns a function that replays `step` on the memory of `inputs`."""
    step(*inputs)  # creates what a capture must not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(*inputs)
    return lambda: (graph.replay(), out)[1]


def main():
    dist.init_process_group("gloo")
    rank, device, dtype = dist.get_rank(), torch.device("cpu"), torch.float32
    if torch.cuda.is_available():
        device, dtype = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank))), torch.bfloat16
        torch.cuda.set_device(device)
    reducer = AllReduce(dist.group.WORLD, device)
    layers = weights(device, dtype)
    sharded = Sharded(layers, reducer)
    steps = 20 if device.type == "cuda" else 3
    for rows in (1, 16, 64):  # tokens of a decode step
        torch.manual_seed(rows)
        inputs = [torch.randn(rows, HIDDEN).to(dtype).to(device) for _ in range(2)]
        step = as_graph(sharded.step, *inputs) if device.type == "cuda" else lambda: sharded.step(*inputs)  # noqa: B023
        got = step()
        torch.testing.assert_close(got, whole_step(layers, *inputs), rtol=0.1, atol=0.1)
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if rank == 0:
            print(f"{rows} rows: {(time.perf_counter() - begin) / steps * 1e6:.0f} us a step")
    if rank == 0:
        print(f"{reducer.world_size} ranks on {device.type} have the results of whole weights")
    reducer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
