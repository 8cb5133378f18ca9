"""One of any number of ranks: a few calls."""

import numpy as np

import ccl

with ccl.Communicator.from_env() as comm:
    n, me = comm.ranks, comm.rank
    assert comm.all_reduce(np.full(3, 2.0, "float32"))[2] == 2 * n
    assert list(comm.all_gather(np.array([me])).ravel()) == list(range(n))
    assert repr(comm) == f"<ccl.Communicator rank {me} of {n}, cpu>"
