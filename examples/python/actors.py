"""Actors that grow and shrink, as those of Ray: python actors.py

A driver starts actors as processes and calls their methods. A newcomer takes the state over from
rank 0. When an actor dies, the calls of the others name it, and they continue without it.
"""

import multiprocessing
import sys

import numpy as np

import ccl


class Worker:
    """What an actor is. With Ray, the class would be decorated by ``ray.remote``."""

    def __init__(self):
        self.comm, self.state = None, np.zeros(4)

    def join(self, id_bytes, rank, ranks):
        """Enters a communicator of the actors that the driver has chosen, and gets their state."""
        if self.comm is not None:
            self.comm.finalize()
        self.comm = ccl.Communicator(ccl.UniqueId(id_bytes), rank, ranks, timeout=60)
        self.comm.broadcast(self.state, root=0)

    def step(self):
        """Adds up a contribution of every actor."""
        self.state += self.comm.all_reduce(np.ones(4))
        return float(self.state[0])

    def leave_behind(self, lost):
        """Continues without the rank `lost`."""
        self.comm = self.comm.shrink([lost])
        return self.comm.rank, self.comm.ranks

    def end(self):
        self.comm.finalize()
        sys.exit()


def serve(pipe):
    worker = Worker()
    while True:
        method, arguments = pipe.recv()
        try:
            pipe.send(getattr(worker, method)(*arguments))
        except ccl.Error as error:  # it can be pickled, with the rank and the peer
            pipe.send(error)


class Actor:
    """Handle of a worker's process, which the driver holds."""

    def __init__(self):
        spawn = multiprocessing.get_context("spawn")
        self.pipe, other = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def call(self, method, *arguments):
        self.pipe.send((method, arguments))


def all_results(actors, limit=120):
    for actor in actors:
        assert actor.pipe.poll(limit), "an actor does not answer"
    return [actor.pipe.recv() for actor in actors]


def gather_in_one(actors):
    """Makes a communicator of these actors. The driver's process helps them find each other."""
    id = ccl.UniqueId.create()
    for rank, actor in enumerate(actors):
        actor.call("join", id.bytes, rank, len(actors))
    all_results(actors)


def step(actors):
    for actor in actors:
        actor.call("step")
    return all_results(actors)


def main():
    actors = [Actor() for _ in range(2)]
    gather_in_one(actors)
    print("2 actors:", step(actors))  # 2
    actors.append(Actor())
    gather_in_one(actors)
    print("3 actors:", step(actors))  # 2 + 3

    actors[1].process.kill()  # a machine fails
    actors[1].process.join()
    rest = [actors[0], actors[2]]
    errors = step(rest)
    assert all(isinstance(error, ccl.PeerLostError) and error.peer == 1 for error in errors), errors
    for actor in rest:
        actor.call("leave_behind", errors[0].peer)
    print("rank", errors[0].peer, "is gone; the others are", all_results(rest))
    print("2 actors:", step(rest))  # 2 + 3 + 2
    for actor in rest:
        actor.call("end")  # collective: all are called before one is waited for
    for actor in rest:
        actor.process.join(60)
        assert actor.process.exitcode == 0


if __name__ == "__main__":
    main()
