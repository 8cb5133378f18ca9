"""One of the ranks of test_torch.py: the backend of torchcomms."""

import os
from datetime import timedelta

import torch
import torchcomms

import ccl
from rank_torch import raises, same

OPS = torchcomms.ReduceOp


def reductions(comm, n, me):
    for async_op in (False, True):
        data = torch.full((3,), me + 1.0)
        comm.all_reduce(data, OPS.SUM, async_op).wait()
        same(data, torch.full((3,), n * (n + 1) / 2), "all_reduce")
        data = torch.full((3,), me + 1.0)
        comm.reduce(data, n - 1, OPS.MAX, async_op).wait()
        same(data, torch.full((3,), float(n if me == n - 1 else me + 1)), "reduce")
        out = torch.empty(2)
        comm.reduce_scatter_single(out, torch.arange(2.0 * n), OPS.AVG, async_op).wait()
        same(out, torch.arange(2.0 * me, 2.0 * me + 2), "reduce_scatter_single")
        comm.reduce_scatter(out.zero_(), list(torch.arange(2.0 * n).chunk(n)), OPS.SUM, async_op).wait()
        same(out, n * torch.arange(2.0 * me, 2.0 * me + 2), "reduce_scatter")
        out = torch.empty(me + 1)
        comm.reduce_scatter_v(out, [torch.ones(r + 1) for r in range(n)], OPS.SUM, async_op).wait()
        same(out, torch.full((me + 1,), float(n)), "reduce_scatter_v")


def movements(comm, n, me):
    every = torch.arange(float(n))
    mine = torch.full((1,), float(me))
    for async_op in (False, True):
        data = mine.clone()
        comm.broadcast(data, n - 1, async_op).wait()
        same(data, torch.full((1,), n - 1.0), "broadcast")
        rows = [torch.empty(1) for _ in range(n)]
        comm.all_gather(rows, mine, async_op).wait()
        same(torch.cat(rows), every, "all_gather")
        rows = [torch.empty(r + 1) for r in range(n)]
        comm.all_gather_v(rows, mine.repeat(me + 1), async_op).wait()
        same(torch.cat(rows), every.repeat_interleave(torch.arange(1, n + 1)), "all_gather_v")
        flat = torch.empty(n)
        comm.all_gather_single(flat, mine, async_op).wait()
        same(flat, every, "all_gather_single")
        comm.all_to_all_single(flat.zero_(), mine.repeat(n), async_op).wait()
        same(flat, every, "all_to_all_single")
        out = torch.empty(n * (n + 1) // 2)
        sizes = [r + 1 for r in range(n)], [me + 1] * n
        comm.all_to_all_v_single(out, mine.repeat((me + 1) * n), *sizes, async_op).wait()
        same(out, every.repeat_interleave(torch.arange(1, n + 1)), "all_to_all_v_single")
        rows = [torch.empty(1) for _ in range(n)]
        comm.all_to_all(rows, [mine.clone() for _ in range(n)], async_op).wait()
        same(torch.cat(rows), every, "all_to_all")
        out = torch.empty(1)
        comm.scatter(out, list(every.chunk(n)) if me == 1 else [], 1, async_op).wait()
        same(out, mine, "scatter")
        rows = [torch.empty(1) for _ in range(n)] if me == 1 else []
        comm.gather(rows, mine, 1, async_op).wait()
        same(torch.cat(rows) if rows else every, every, "gather")
        comm.barrier(async_op).wait()


def messages(comm, n, me):
    to, source = (me + 1) % n, (me - 1) % n
    box = torch.empty(2)
    works = [comm.send(torch.full((2,), float(me)), to, True), comm.recv(box, source, True)]
    for work in works:
        work.wait()
    same(box, torch.full((2,), float(source)), "message")


def parts(comm, n, me):
    """Rank 0 is alone, the last one in no part."""
    given = [0] if me == 0 else list(range(1, n - 1)) if me < n - 1 else []
    part = comm.split(given, "part")
    assert (part is None) == (not given)
    if part is not None:
        assert (part.get_rank(), part.get_size()) == (given.index(me), len(given))
        data = torch.ones(2)
        part.all_reduce(data, OPS.SUM, False)
        same(data, torch.full((2,), float(len(given))), "sum of a part")
        part.finalize()


def refusals(comm):
    one, scaled, strided = torch.ones(1), OPS.PREMUL_SUM(2.0), torch.ones(4, 6)[:, :3]
    raises(ccl.NotSupportedError, lambda: comm.all_reduce(one, scaled, False), "multiply the tensor")
    raises(ccl.InvalidArgumentError, lambda: comm.all_reduce(strided, OPS.SUM, False), "not contiguous")
    for variable in ("MASTER_ADDR", "RANK"):
        kept = os.environ.pop(variable)
        new = lambda: torchcomms.new_comm("ccl_comm", torch.device("cpu"), name="third")  # noqa: E731
        raises(ccl.InvalidUsageError, new, variable)
        os.environ[variable] = kept
    comm.barrier(False)


def late(comm, main, n, me):
    """The last rank comes when the others have given up, and named it."""
    call = lambda async_op: comm.all_reduce(torch.ones(1), OPS.SUM, async_op).wait()  # noqa: E731
    call(False)
    if me < n - 1:
        raises(ccl.TimedOutError, lambda: call(True), f"rank {n - 1}")
    main.barrier(False)
    raises(ccl.Error, lambda: call(False))


def main():
    comm = torchcomms.new_comm("ccl_comm", torch.device("cpu"), name="main", timeout=timedelta(seconds=60))
    n, me = comm.get_size(), comm.get_rank()
    assert comm.get_backend() == "ccl_comm"
    for case in (reductions, movements, messages, parts):
        case(comm, n, me)
    other = torchcomms.new_comm("ccl_comm", torch.device("cpu"), name="second", timeout=timedelta(seconds=60))
    data = torch.ones(1)
    other.all_reduce(data, OPS.SUM, False)
    same(data, torch.full((1,), float(n)), "a second communicator")
    refusals(comm)
    other.finalize()
    brief = torchcomms.new_comm("ccl_comm", torch.device("cpu"), name="brief", timeout=timedelta(seconds=2))
    late(brief, comm, n, me)
    comm.finalize()
    print(f"rank {me}: torchcomms is right", flush=True)


if __name__ == "__main__":
    main()
