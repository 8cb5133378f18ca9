"""One of two ranks with a device. The wheel's library is one for CPU ranks, which takes host memory
in place of a GPU's: the calls of the package are tried, not the kernels."""

import os
import sys
import tempfile
import types

import numpy as np

import ccl
from ccl import _cuda, _gpu


class Played:
    """An array that says it is on CUDA device 0."""

    def __init__(self, array, stream=None, mask=None):
        self.array = array
        self.dtype = array.dtype
        self.more = {"version": 3, "stream": stream, "mask": mask}
        self.device = types.SimpleNamespace(id=0)

    @property
    def __cuda_array_interface__(self):
        return self.array.__array_interface__ | self.more


class Unnamed(Played):
    """An array that does not say its device."""

    def __init__(self, array):
        super().__init__(array)
        self.device = None


class Driver:
    """Takes the place of CUDA's driver, and records the calls."""

    def __init__(self, context=0x77):
        self.calls = []
        self.context = context  # of this thread

    def cuCtxGetCurrent(self, found):
        found._obj.value = self.context
        return 0

    def cuCtxSetCurrent(self, context):
        self.calls.append(("cuCtxSetCurrent", context.value))
        self.context = context.value
        return 0

    def __getattr__(self, name):
        def call(*given):
            values = [getattr(one, "value", None) for one in given]
            if not name.startswith("cuInit"):
                self.calls.append((name, values[0] if name == "cuStreamWaitEvent" else values[-1]))
            return 0

        return call


def check_producer_streams(comm):
    """The call's stream waits for the stream that the array names."""
    data, out = np.ones(4, "float32"), Played(np.empty(4, "float32"))
    real, driver = _cuda.driver, Driver()
    _cuda.driver = lambda: driver
    try:
        comm.all_reduce(Played(data, stream=0), out=out, stream=0)
        assert driver.calls == [], driver.calls
        comm.all_reduce(Played(data, stream=1), out=out, stream=0)  # both the legacy default stream
        assert driver.calls == [], driver.calls
        comm.all_reduce(Played(data, stream=5), out=out, stream=0)
        names = [name for name, _ in driver.calls]
        assert names[-6:] == ["cuCtxSetCurrent", "cuEventCreate", "cuEventRecord", "cuStreamWaitEvent",
                              "cuEventDestroy_v2", "cuCtxSetCurrent"], names  # fmt: skip
        assert driver.calls[-4] == ("cuEventRecord", 5), driver.calls
        assert driver.context == 0x77, "the thread has another device after the call"
        part = comm.split(0)
        assert driver.context == 0x77, "the thread has another device after a split"
        assert driver.calls[-1] == ("cuCtxSetCurrent", 0x77), driver.calls
        part.finalize()
    finally:
        _cuda.driver = real
        _cuda._contexts.clear()


def check_tensors_are_recorded():
    """PyTorch is told of the stream, which may differ from that of the allocation."""
    from ccl import _stream

    told, current = [], types.SimpleNamespace(cuda_stream=7)
    tensor = types.SimpleNamespace(record_stream=told.append)
    cuda = types.SimpleNamespace(
        current_stream=lambda device: current,
        ExternalStream=lambda handle, device: (handle, device),
    )
    before = sys.modules.get("torch")
    sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
    try:
        _stream.record([tensor], 7, 0)
        assert told == [current], told
        _stream.record([tensor], 9, 0)
        assert told[1:] == [(9, 0)], told
    finally:
        if before is None:
            del sys.modules["torch"]
        else:
            sys.modules["torch"] = before


def check_options(comm):
    """Options reach the communicator, and it says what it knows."""
    comm.barrier()
    assert comm.memory_used > 0 and comm.host(1) and "rank" in comm.report()
    with tempfile.TemporaryDirectory() as folder:
        comm.dump(folder)
        assert os.listdir(folder)
    given = ccl.UniqueId.create().bytes if comm.rank == 0 else bytes(128)
    shared = np.frombuffer(bytearray(given), "uint8")
    comm.broadcast(Played(shared))
    id = ccl.UniqueId(shared.tobytes())
    other = ccl.Communicator(id, comm.rank, comm.ranks, device=0, timeout=0.5, name="short")
    one = np.ones(1, "float32")
    other.all_reduce(Played(one), out=Played(one.copy()))
    comm.barrier()
    if comm.rank == 0:  # rank 1 is late
        try:
            other.all_reduce(Played(one), out=Played(one.copy()))
        except ccl.TimedOutError as error:
            assert "rank 1" in str(error), error
        else:
            raise AssertionError("no deadline")
    comm.barrier()
    try:
        other.check_status()
    except ccl.TimedOutError as error:
        assert str(error)
    else:
        raise AssertionError("no status")
    other.abort()


def check_driver_is_asked_for():
    """The library alone would make a CPU rank, which calls itself cuda:0."""
    try:
        ccl.Communicator(ccl.UniqueId.create(), 0, 1, device=0)
    except ccl.NotSupportedError as error:
        assert "libcuda.so.1" in str(error) and "CUDA device 0" in str(error), error
    else:
        raise AssertionError("a rank of a GPU without a driver")


def main():
    if _cuda.driver() is None:
        check_driver_is_asked_for()
    _gpu.check_driver = lambda device: None  # no GPU is played, only its memory
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
    parts = np.full(6, -1)
    counts = [1, 1] if me == 0 else [3, 3]  # from each
    comm.all_to_all_v(Played(np.arange(4) + 10 * me), [1, 3], counts, out=Played(parts))
    assert list(parts) == ([0, 10, -1, -1, -1, -1] if me == 0 else [1, 2, 3, 11, 12, 13]), parts
    mine[:], rows[:] = me + 5, 0
    comm.gather(Played(mine), root=0, out=Played(rows))
    assert (rows == ([[5] * 3, [6] * 3] if me == 0 else 0)).all(), rows
    rows += 10
    comm.scatter(Played(rows), root=0, out=Played(mine))
    assert (mine == 15 + me).all(), mine
    comm.send_recv(Played(data), 1 - me, Played(out), 1 - me)
    assert (out == 2 - me).all(), out
    for call, kind in (
        (lambda: comm.all_reduce(data), ccl.InvalidArgumentError),
        (lambda: comm.all_reduce(Played(data), "prod", out=Played(out)), ccl.Error),
        (lambda: comm.all_reduce(Played(mine), out=Played(mine.copy())), ccl.NotSupportedError),
        (lambda: comm.all_reduce(Played(data), out=Played(out), stream=ccl.Stream()),
         ccl.InvalidUsageError),
        (lambda: comm.all_reduce(Played(data, mask=Played(data)), out=Played(out)),
         ccl.InvalidArgumentError),
        (lambda: comm.all_reduce(Unnamed(data), out=Played(out)), ccl.InvalidArgumentError),
        (lambda: comm.all_reduce(Played(data > 0), out=Played(out > 0)), ccl.InvalidArgumentError),
        (lambda: comm.split(0, timeout=3), ccl.NotSupportedError),
        (lambda: comm.split(0, check=False), ccl.NotSupportedError),
        (lambda: comm.shrink([0], channels=2), ccl.NotSupportedError),
        (lambda: ccl.Communicator([ccl.UniqueId.create()] * 2, 0, 1, device=0),
         ccl.NotSupportedError),
        (lambda: ccl.Communicator([], 0, 1, device=0), ccl.InvalidArgumentError),
        (lambda: ccl.Communicator(ccl.UniqueId.create(), 0, 1, device=0, timeout=-1), ccl.InvalidArgumentError),
        (lambda: ccl.Communicator(ccl.UniqueId.create(), 0, 1, device=0, init_timeout=float("nan")),
         ccl.InvalidArgumentError),
    ):  # fmt: skip
        try:
            call()
        except kind:
            continue
        raise AssertionError(kind)
    check_options(comm)
    check_producer_streams(comm)
    check_tensors_are_recorded()
    half = comm.split(0, -me)
    assert half.rank == n - 1 - me
    half.finalize()
    comm.check_status()
    comm.finalize()


if __name__ == "__main__":
    main()
