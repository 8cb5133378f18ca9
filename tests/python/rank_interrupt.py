"""One rank of four that gets Ctrl-C in a blocking call. The argument names the call."""

import faulthandler
import os
import signal
import sys
import threading
import time

import numpy as np

import ccl

# For an interrupted call to end: usually it takes 0.3 s. Without the interrupt, each call here
# lasts longer than this.
LIMIT_S = 20.0


def interrupt(call, after=0.5):
    """Interrupts `call` after some time, and returns how long it then took to end."""
    sent = []

    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, send)
    timer.start()
    try:
        call()
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
        assert took < LIMIT_S, f"the interrupt took {took:.1f} s"
        return took
    finally:
        timer.cancel()
    raise AssertionError("no KeyboardInterrupt")


CALLS = {
    "all_reduce": lambda comm: comm.all_reduce(np.ones(10)),
    "recv": lambda comm: comm.recv(np.empty(1), 3),
    "barrier": lambda comm: comm.barrier(),
    "split": lambda comm: comm.split(0),
}


def others_learn(comm, call):
    """Ranks that were not interrupted get an error that says why; rank 3 makes no call."""
    try:
        if comm.rank == 3:
            while True:
                comm.check_status()
                time.sleep(0.05)
        call(comm)
    except ccl.AbortedError as error:
        assert "Ctrl-C" in str(error), str(error)
        return
    raise AssertionError("no AbortedError")


def interrupt_call(comm, name):
    """Repeats an interrupt that came before the call, as on a machine that is busy."""
    for after in (0.5, 2, 8):
        took = interrupt(lambda: CALLS[name](comm), after)
        try:
            comm.check_status()
        except ccl.AbortedError:
            return took
    raise AssertionError("the interrupt does not end the communicator")


def in_call(name):
    comm = ccl.Communicator.from_env(init_timeout=30)
    comm.all_reduce(np.ones(10))
    if comm.rank == 0:
        print(f"{name}: {interrupt_call(comm, name):.2f} s")
    else:
        others_learn(comm, CALLS[name])


def in_creation():
    """Rank 3 never comes."""
    try:
        took = interrupt(lambda: ccl.Communicator.from_env(init_timeout=60))
        print(f"creation: {took:.2f} s")
    except ccl.AbortedError as error:  # another rank was interrupted first
        assert "Ctrl-C" in str(error), str(error)


def go():
    """Lets the ranks pass that wait for it."""
    open(os.environ["GO"], "w").close()


def wait_for_go():
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.02)


def in_stream():
    """A stream's call stays queued, and the communicator goes on."""
    comm = ccl.Communicator.from_env(init_timeout=30)
    data = np.ones(10)
    comm.all_reduce(data)
    stream = ccl.Stream()
    out = comm.all_reduce(data, stream=stream) if comm.rank == 0 else None
    if comm.rank == 0:
        interrupt(stream.synchronize)
        for limit in (0.3, 1.25):
            try:
                stream.synchronize(timeout=limit)
            except TimeoutError as error:
                assert f"have not run within {limit} s" in str(error), error
            else:
                raise AssertionError("no TimeoutError")
        go()
        stream.synchronize()
    else:
        wait_for_go()
        out = comm.all_reduce(data)
    assert (out == comm.ranks).all()
    comm.finalize()


def own_handler():
    """A handler of the program runs after the call, which goes on."""
    ran = []
    signal.signal(signal.SIGINT, lambda *_: ran.append(time.monotonic()))
    comm = ccl.Communicator.from_env(init_timeout=30)
    comm.all_reduce(np.ones(10))
    if comm.rank == 0:

        def send():
            os.kill(os.getpid(), signal.SIGINT)
            go()

        threading.Timer(0.3, send).start()
    elif comm.rank == 3:
        wait_for_go()
    assert (comm.all_reduce(np.ones(10)) == comm.ranks).all()
    assert comm.rank != 0 or len(ran) == 1
    comm.finalize()


others = []


def first_of_two():
    """Returns a rank of this process, whose first call from the other has been made."""
    first, second = ccl.Communicator.create_all(2, init_timeout=30)
    sender = threading.Thread(target=second.send, args=(np.ones(1), 0))
    sender.start()
    first.recv(np.empty(1), 1)
    sender.join()
    others.append(second)
    return first


def chained():
    """A handler in C that was installed later, and calls the one before it."""
    comm = first_of_two()
    with open(os.devnull, "w") as nowhere:
        faulthandler.register(signal.SIGINT, chain=True, file=nowhere)
        print(f"chained: {interrupt(lambda: comm.recv(np.empty(1), 1)):.2f} s")
        faulthandler.unregister(signal.SIGINT)


def forked_by_a_thread():
    """The thread that forks is the main thread of the child."""
    codes = []

    def fork():
        first_of_two().abort("the test is over")
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(60)
                interrupt(lambda: first_of_two().recv(np.empty(1), 1))
                os._exit(0)
            finally:
                os._exit(1)
        codes.append(os.waitpid(child, 0)[1])

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert codes == [0], codes


def many_calls():
    """Calls that do not block cost no look for signals, and an interrupt between them is Python's."""
    comm = ccl.Communicator.from_env(init_timeout=30)
    data = np.ones(10)
    if comm.rank == 0:

        def calls():
            while True:
                comm.all_reduce(data)

        print(f"between calls: {interrupt(calls, 0.3):.2f} s")
        comm.abort("the test is over")
        return
    try:
        while True:
            comm.all_reduce(data)
    except ccl.AbortedError:
        pass


def main():
    case = sys.argv[1]
    if case in CALLS:
        in_call(case)
    else:
        globals()[case]()


if __name__ == "__main__":
    main()
