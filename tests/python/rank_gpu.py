"""One of two ranks with a device. The wheel's library is one for CPU ranks, which takes host memory
in place of a GPU's: the calls of the package are tried, not the kernels."""

import numpy as np

import ccl


class Played:
    """An array that says it is on CUDA device 0."""

    def __init__(self, array):
        self.array = array
        self.dtype = array.dtype

    @property
    def __cuda_array_interface__(self):
        return self.array.__array_interface__ | {"version": 3, "stream": None}


def main():
    comm = ccl.Communicator.from_env(device=0)
    n, me = comm.ranks, comm.rank
    assert repr(comm) == f"<ccl.Communicator rank {me} of {n}, cuda:0>"
    data, out = np.full(8, me + 1.0, "float32"), np.empty(8, "float32")
    comm.all_reduce(Played(data), "max", out=Played(out), stream=0)
    assert (out == n).all(), out
    part = np.empty(4, "float32")
    comm.reduce_scatter(Played(data), out=Played(part))
    assert (part == 3).all(), part
    comm.reduce(Played(data), "avg", root=1, out=Played(out))
    assert me != 1 or (out == 1.5).all(), out
    mine, rows = np.full(3, me, "int16"), np.empty((n, 3), "int16")  # a type that NCCL lacks
    comm.all_gather(Played(mine), out=Played(rows))
    assert (rows == [[0] * 3, [1] * 3]).all(), rows
    comm.broadcast(Played(mine), root=1)
    assert (mine == 1).all(), mine
    table = np.arange(2 * n) + 10 * me
    got = np.empty_like(table)
    comm.all_to_all(Played(table), out=Played(got))
    assert list(got) == [2 * me, 2 * me + 1, 10 + 2 * me, 11 + 2 * me], got
    got[:] = -1
    comm.all_to_all_v(Played(table), [1, 3], [1, 1] if me == 0 else [3, 3], out=Played(np.empty(6, int)))
    comm.gather(Played(mine), root=0, out=Played(rows))
    comm.scatter(Played(rows), root=0, out=Played(mine))
    comm.send_recv(Played(data), 1 - me, Played(out), 1 - me)
    assert (out == 2 - me).all(), out
    for call, kind in (
        (lambda: comm.all_reduce(data), ccl.InvalidArgumentError),
        (lambda: comm.all_reduce(Played(data), "prod", out=Played(out)), ccl.Error),
        (lambda: comm.all_reduce(Played(mine), out=Played(mine.copy())), ccl.NotSupportedError),
        (lambda: comm.all_reduce(Played(data), out=Played(out), stream=ccl.Stream()),
         ccl.InvalidUsageError),
        (lambda: comm.barrier(), ccl.NotSupportedError),
    ):  # fmt: skip
        try:
            call()
        except kind:
            continue
        raise AssertionError(kind)
    half = comm.split(0, -me)
    assert half.rank == n - 1 - me
    half.finalize()
    comm.check_status()
    comm.finalize()


if __name__ == "__main__":
    main()
