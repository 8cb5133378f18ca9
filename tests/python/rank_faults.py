"""One of the ranks of test_faults.py. The argument names the case."""

import copy
import os
import pickle
import signal
import sys
import threading
import time

import numpy as np

import ccl


class OnlyDLPack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **given):
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Refusing:
    def __dlpack__(self, **given):
        raise BufferError("its elements are not in memory")

    def __dlpack_device__(self):
        return (1, 0)


def raises(kind, call, *words, peer=None):
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
        if peer is not None:
            assert error.peer == peer, f"peer {error.peer}, not {peer}: {error}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def arguments(comm):
    bad = ccl.InvalidArgumentError
    n, me = comm.ranks, comm.rank
    data = np.ones((4, 6), "float32")
    raises(bad, lambda: comm.all_reduce(data, out=np.ones(5, "float32")), "5 elements", "24")
    raises(bad, lambda: comm.all_reduce(data, out=np.ones((4, 6))), "float", "double", f"rank {me}")
    raises(bad, lambda: comm.all_reduce(data[:, :3]), "not contiguous", "strides")
    raises(bad, lambda: comm.all_reduce(data.T), "not contiguous")
    fixed = data.copy()
    fixed.flags.writeable = False
    raises(bad, lambda: comm.all_reduce(data, out=fixed), "read-only")
    raises(bad, lambda: comm.recv(bytes(4), 0), "read-only")
    raises(bad, lambda: comm.all_reduce(data, out=OnlyDLPack(fixed)), "read-only")
    assert (fixed == 1).all()
    raises(bad, lambda: comm.recv(np.float64(1), 0), "read-only")
    raises(bad, lambda: comm.all_reduce(np.ma.masked_array([1.0], [True])), "mask", "filled()")
    for run in (comm.all_reduce, comm.reduce, comm.reduce_scatter):
        raises(bad, lambda: run(np.ones(n, bool)), "bool", "uint8", f"rank {me}")
        raises(bad, lambda: run(OnlyDLPack(np.ones(n, bool))), "bool")
        raises(bad, lambda: run(memoryview(np.ones(n, bool))), "bool")
    stream = ccl.Stream()
    raises(bad, lambda: stream.synchronize(float("nan")), "nan")
    raises(bad, lambda: stream.synchronize(-1), "-1")
    raises(TypeError, lambda: comm.all_to_all_v(data, [2.9] * n, [2] * n))
    raises(bad, lambda: ccl.Communicator([], 0, 1), "none was given")
    raises(bad, lambda: comm.all_reduce(np.ones(3, "complex64")), "complex64", "bfloat16")
    raises(bad, lambda: comm.all_reduce(OnlyDLPack(np.ones(3, "complex64"))), "complex64")
    raises(bad, lambda: comm.all_reduce(np.ones(3, ">f4")), ">f4", "byte order", 'astype("float32")')
    raises(bad, lambda: comm.all_gather(np.array([1, "a"], object)), "type object", "uint64, bool, float16")
    raises(bad, lambda: comm.all_reduce(np.array(["a"])), "cannot move")
    raises(bad, lambda: comm.all_reduce(object()), "no array")
    raises(bad, lambda: comm.all_reduce(Refusing()), "Refusing", "BufferError", "not in memory")
    raises(bad, lambda: comm.all_reduce([1.0, 2.0]), "list", "no array")
    raises(bad, lambda: comm.all_reduce(data, "median"), "median", "avg")
    raises(bad, lambda: comm.all_reduce(data, data), "no reduction")
    raises(TypeError, lambda: comm.split("a"), "color is 'a', a str")
    raises(TypeError, lambda: comm.split(0, 1.5), "key is 1.5, a float")
    raises(bad, lambda: comm.split(2**40), f"color is {2**40}")
    raises(TypeError, lambda: comm.shrink(1), "excluded is 1, a int")
    raises(TypeError, lambda: comm.shrink(["1"]), "an excluded rank is '1', a str")
    raises(bad, lambda: comm.broadcast(data, root=n), f"root {n}", f"0 to {n - 1}")
    raises(bad, lambda: comm.send(data, -1), "-1")
    raises(bad, lambda: comm.reduce_scatter(np.ones(n + 1)), f"{n} ranks")
    raises(bad, lambda: comm.all_to_all_v(data, [1], [1] * n), "send_counts", str(n))
    raises(bad, lambda: comm.all_to_all_v(data, [9] * n, [9] * n), "24", "36")
    raises(bad, lambda: comm.scatter(root=(me + 1) % n), "out=")
    raises(bad, lambda: comm.exchange([("put", data, 0)]), "put")
    raises(bad, lambda: comm.exchange([("send", data)]), "(kind, array, peer)")
    raises(TypeError, lambda: pickle.dumps(comm), "does not pickle", "UniqueId.bytes")
    assert copy.copy(comm) is comm
    raises(bad, lambda: ccl.UniqueId(b"x"), "128 bytes", "1")
    raises(TypeError, lambda: ccl.Communicator.from_env(time_out=1), "time_out", "timeout")
    for name, value in {"timeout": "5", "channels": 1.5, "name": None, "check": "yes"}.items():
        wrong = {name: value}
        raises(TypeError, lambda: ccl.Communicator.from_env(**wrong), name, repr(value))
        raises(TypeError, lambda: comm.split(0, **wrong), name, repr(value))
    raises(TypeError, lambda: ccl.Communicator(b"x", 0, 1), "int", "ccl.UniqueId")
    raises(TypeError, lambda: comm.broadcast(data, root="0"), "root is '0'", "str")
    raises(TypeError, lambda: comm.send(data, 1.0), "to is 1.0", "float")
    raises(bad, lambda: ccl.Communicator.from_env(device="gpu"), '"gpu"', '"local"')
    raises(ccl.InvalidUsageError, lambda: comm.all_reduce(data, stream=3), "int", "ccl.Stream")
    if not has_library():
        own = ccl.UniqueId.create()
        raises(ccl.NotSupportedError, lambda: ccl.Communicator(own, 0, 1, device=0))
    comm.barrier()  # nothing of this has harmed the communicator
    comm.finalize()
    raises(ccl.InvalidUsageError, lambda: comm.all_reduce(data))


def has_library():
    try:
        return ccl.nccl.library() is not None
    except ccl.NotSupportedError:
        return False


def mismatch(comm):
    """Rank 1 gives another count; all ranks are told."""
    count = 6 if comm.rank == 1 else 5
    error = raises(ccl.MismatchError, lambda: comm.all_reduce(np.ones(count)), "5", "6")
    assert isinstance(error, ValueError)


def late(comm):
    """Rank 2 comes only when the others have given up."""
    comm.all_reduce(np.ones(10))  # the creation has a deadline of its own
    if comm.rank == 2:
        while True:
            try:
                comm.check_status()
            except ccl.Error:
                return
            time.sleep(0.05)
    error = raises(TimeoutError, lambda: comm.all_reduce(np.ones(10)), "rank 2")
    assert error.code == "timed_out" and error.rank == comm.rank
    comm.abort("the test is over")


def dead(comm):
    """Rank 3 is killed; the others continue without it."""
    if comm.rank == 3:
        comm.all_reduce(np.ones(10))
        os.kill(os.getpid(), signal.SIGKILL)
    calls = lambda: [comm.all_reduce(np.ones(10)) for _ in range(100)]  # noqa: E731
    error = raises(ccl.PeerLostError, calls, peer=3)
    assert isinstance(error, ConnectionError)
    rest = comm.shrink([3])
    assert rest.ranks == comm.ranks - 1
    assert rest.all_reduce(np.ones(1))[0] == rest.ranks
    rest.finalize()


def abort(comm):
    """A thread of rank 0 aborts a call in which all ranks wait: the interpreter's lock is free."""

    def calls():
        comm.all_reduce(np.ones(10))
        if comm.rank == 0:
            threading.Timer(0.3, comm.abort, ["a test wants it"]).start()
        comm.recv(np.empty(1), 0 if comm.rank == 1 else 1)

    raises(ccl.AbortedError, calls, "a test wants it")


def leave(comm):
    """An exception that leaves the block of rank 1 ends the calls of the others."""
    box = np.empty(1)
    if comm.rank == 1:
        comm.exchange([("recv", np.empty(1), r) for r in range(comm.ranks) if r != 1])
        raises(KeyError, lambda: leave_block(comm))
    else:
        wait = lambda: (comm.send(box, 1), comm.recv(box, 1))  # noqa: E731
        raises(ccl.AbortedError, wait, "KeyError", "rank 1")


def leave_block(comm):
    with comm:
        raise KeyError("mine")


def main():
    case = globals()[sys.argv[1]]
    timeout = 2 if case is late else 60
    comm = ccl.Communicator.from_env(timeout=timeout, init_timeout=30, check=case is mismatch)
    comm.barrier()
    case(comm)
    print(f"rank {comm.rank}: {sys.argv[1]} is right")


if __name__ == "__main__":
    main()
