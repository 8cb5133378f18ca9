"""A program of a user, for type checkers: each mistake is found, and nothing else is."""

import numpy as np
import numpy.typing as npt

import ccl

Array = npt.NDArray[np.float32]


def right(x: Array) -> Array:
    comms = ccl.Communicator.create_all(2, name="pair", timeout=30, memory_budget=1 << 20)
    part = comms[0].split(0, check=True)
    assert part is not None
    rest = part.shrink([1], init_timeout=None)
    with ccl.Communicator.from_env(timeout=0.5, channels=2) as comm:
        y: Array = comm.all_reduce(x, "max", out=x, stream=ccl.Stream())
        rank: int = rest.rank + comm.rank
        comm.broadcast(x, root=rank)
    return y


def wrong(x: Array, comm: ccl.Communicator, id: ccl.UniqueId) -> None:
    ccl.Communicator(id, 0, 2, timeout="30")  # type: ignore[arg-type]
    ccl.Communicator.from_env(time_out=30)  # type: ignore[call-arg]
    comm.split(0, name=3)  # type: ignore[arg-type]
    comm.split(0).barrier()  # type: ignore[union-attr]
    comm.all_reduce(x, 3)  # type: ignore[arg-type]
    comm.broadcast(x, root="0")  # type: ignore[arg-type]
    comm.all_reduce(x, streams=None)  # type: ignore[call-arg]
