"""One of three ranks, of which rank 1 ends its program first, with a communicator that is alive."""

import atexit
import sys
import threading
import time

how = sys.argv[1]


def call_once_more():
    """Runs while the interpreter ends. All ranks take part."""
    assert comm.all_reduce(numpy.ones(2, "float32"))[1] == comm.ranks
    comm.finalize()


if how == "early":  # registered before ccl's own function, so it runs after that
    atexit.register(call_once_more)

import numpy  # noqa: E402

import ccl  # noqa: E402

comm = ccl.Communicator.from_env()
assert comm.all_reduce(numpy.ones(2, "float32"))[1] == comm.ranks
if how == "late":
    atexit.register(call_once_more)
if how == "held":
    numpy.held = comm  # lives longer than the names of this module

if how == "daemon":
    if comm.rank == 0:  # its thread makes connections when the interpreter ends
        data = numpy.ones(2, "float32")
        threading.Thread(target=comm.all_gather, args=(data,), daemon=True).start()
    time.sleep(0.5 if comm.rank == 0 else 2.5)
    sys.exit(0)
if comm.rank == 1:
    if how == "exception":
        time.sleep(0.5)  # it would also end the call, where other ranks are still in it
        raise KeyError("mine")
    sys.exit(0)
if how in ("early", "late"):
    sys.exit(0)
if how == "exception":
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            comm._core.status()
        except ccl.Error as error:
            assert "rank 1" in str(error) and "KeyError: 'mine'" in str(error), error
            sys.exit(0)
        time.sleep(0.01)
    raise AssertionError("rank 1 has ended with an exception, and no rank knows")
if how == "needed":
    try:
        comm.all_reduce(numpy.ones(2, "float32"))
    except ccl.PeerLostError as error:
        assert "rank 1 on " in str(error) and "its process exited" in str(error), error
        sys.exit(0)
    raise AssertionError("rank 1 has gone, and a call succeeded")
time.sleep(1.2)
comm._core.status()
if comm.rank == 0:
    comm.finalize()
