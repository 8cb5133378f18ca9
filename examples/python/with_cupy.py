"""Heat in a bar that is divided among GPUs, with CuPy: mpirun -n 2 python with_cupy.py

Each step exchanges one cell with the neighbors. Kernels of CuPy and calls of ccl run on one stream,
in order, and the host waits once, at the end. `with_cupy.py numpy` is the same on CPU ranks.
"""

import contextlib
import importlib
import sys

import numpy

import ccl

CELLS, STEPS, RATE = 64, 200, 0.25  # cells of each rank


def stepped(bar):
    """Returns the inner cells after a step."""
    return bar[1:-1] + RATE * (bar[:-2] - 2 * bar[1:-1] + bar[2:])


def neighbors(comm, bar):
    """Returns the messages that fill the outer cells: the neighbors' nearest ones."""
    left, right = comm.rank - 1, comm.rank + 1
    messages = []
    if left >= 0:
        messages += [("send", bar[1:2], left), ("recv", bar[:1], left)]
    if right < comm.ranks:
        messages += [("send", bar[-2:-1], right), ("recv", bar[-1:], right)]
    return messages


def check(whole, change, ranks):
    bar = numpy.zeros(ranks * CELLS + 2)
    bar[0] = 1
    for _ in range(STEPS):
        new = stepped(bar)
        expected = numpy.abs(new - bar[1:-1]).max()
        bar[1:-1] = new
    assert numpy.allclose(whole, bar[1:-1]) and numpy.allclose(change, expected), (whole, change)


def main():
    xp = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "cupy")
    on_gpus = xp.__name__ == "cupy"
    with ccl.Communicator.from_env(device="local" if on_gpus else None) as comm:
        stream = None
        if on_gpus:
            xp.cuda.Device(comm.device).use()
            stream = xp.cuda.Stream(non_blocking=True)
        with stream or contextlib.nullcontext():
            bar = xp.zeros(CELLS + 2)  # and an outer cell at each end
            if comm.rank == 0:
                bar[0] = 1  # the hot end; the other one is cold
            for _ in range(STEPS):
                comm.exchange(neighbors(comm, bar), stream=stream)
                new = stepped(bar)
                change = xp.abs(new - bar[1:-1]).max(keepdims=True)
                bar[1:-1] = new
            largest = comm.all_reduce(change, "max", stream=stream)
            whole = comm.all_gather(bar[1:-1], stream=stream)
        if stream is not None:
            stream.synchronize()
        moved = largest.tolist()[0]
        check(numpy.array(whole.tolist()).ravel(), moved, comm.ranks)
        if comm.rank == 0:
            print(f"{comm.ranks} ranks have the temperatures of one bar; the last step moved {moved:.2g}")


if __name__ == "__main__":
    main()
