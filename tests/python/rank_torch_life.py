"""One of the ranks of test_torch.py: lives of works, tensors and groups. The arguments name the cases."""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import ccl
import ccl.torch
import rank_torch
from ccl.torch import _ending, _tensors
from rank_torch import PLAYED, raises, same, wait_for_others

if PLAYED:
    import played_cuda


def turned(tensor):
    """Returns an equal matrix whose memory has another order."""
    return tensor.t().contiguous().t()


def orders(n, me):
    """Elements keep their indices, if tensors of one call have different orders of memory."""
    of = [torch.arange(6.0).view(2, 3) + 10 * r for r in range(n)]
    mine = turned(of[me]) if me != 1 else of[me]
    flip = lambda tensor: turned(tensor) if me != 1 else tensor.clone()  # noqa: E731
    data = mine.clone()
    dist.all_reduce(data)
    same(data, sum(of), "all_reduce")
    data = mine.clone()
    dist.reduce(data, n - 1)
    same(data, sum(of) if me == n - 1 else of[me], "reduce")
    for root in (0, 1 % n):
        data = mine.clone()
        dist.broadcast(data, root)
        same(data, of[root], f"broadcast from {root}")
    orders_of_gathers(n, me, of, mine, flip)
    to, source = (me + 1) % n, (me - 1) % n
    box = flip(torch.zeros(2, 3))
    if n > 1:
        for work in [dist.isend(mine, to), dist.irecv(box, source)]:
            work.wait()
        same(box, of[source], "message")
        late = dist.isend(mine, to)
        time.sleep(0.3)  # the message is there before its receive
        box = flip(torch.zeros(2, 3))
        dist.irecv(box, source).wait()
        late.wait()
        same(box, of[source], "message before its receive")


def orders_of_gathers(n, me, of, mine, flip):
    group, all = dist.group.WORLD, torch.cat(of)
    out = flip(torch.zeros(2 * n, 3))
    dist.all_gather_into_tensor(out, mine)
    same(out, all, "all_gather_into_tensor")
    outs = [flip(torch.zeros(2 * n, 3)) for _ in range(2)]
    group.allgather_into_tensor_coalesced(outs, [mine, of[me]]).wait()
    for out in outs:
        same(out, all, "allgather_into_tensor_coalesced")
    rows = [flip(torch.zeros(2, 3)) for _ in range(n)]
    dist.all_gather(rows, mine)
    same(torch.cat(rows), all, "all_gather")
    out = flip(torch.zeros(2 * n, 3))
    group.gather_single(out, mine).wait()
    same(out, all if me == 0 else torch.zeros(2 * n, 3), "gather_single")
    out = flip(torch.zeros(2, 3))
    dist.scatter(out, [flip(t) for t in of] if me == 0 else None)
    same(out, of[me], "scatter")
    out = flip(torch.zeros(2, 3))
    dist.reduce_scatter_tensor(out, flip(all))
    same(out, n * of[me], "reduce_scatter_tensor")
    out = flip(torch.zeros(2, 3))
    dist.reduce_scatter(out, [flip(t) for t in of])
    same(out, n * of[me], "reduce_scatter")
    outs = [flip(torch.zeros(2, 3)) for _ in range(2)]
    group.reduce_scatter_tensor_coalesced(outs, [flip(all), all], dist.ReduceScatterOptions()).wait()
    for out in outs:
        same(out, n * of[me], "reduce_scatter_tensor_coalesced")
    both = [mine.clone(), of[me].clone()]
    group.allreduce_coalesced(both).wait()
    for data in both:
        same(data, sum(of), "allreduce_coalesced")


def refusals(n, me):
    """Calls that would write beyond their memory, or give other numbers than those that are read."""
    group, bad = dist.group.WORLD, ccl.InvalidArgumentError
    imaginary = torch.tensor([1 + 1j]).conj().imag
    assert imaginary.is_neg() and imaginary.is_contiguous()
    raises(NotImplementedError, lambda: dist.all_reduce(imaginary), "resolve_neg")
    raises(NotImplementedError, lambda: group.broadcast([torch.tensor([1j]).conj()]), "resolve_conj")
    alone = ccl.Communicator.create_all(1)[0]
    raises(bad, lambda: alone.all_reduce(imaginary), "resolve_neg")
    alone.finalize()
    ones, two = torch.ones(1), [torch.ones(n), torch.ones(n)]
    raises(bad, lambda: group.allgather_into_tensor_coalesced(two, [ones]), "2 outputs", "1 inputs")
    raises(bad, lambda: group.reduce_scatter_tensor_coalesced([ones], two), "1 outputs", "2 inputs")
    raises(bad, lambda: group.allreduce_coalesced([]), "0 outputs")
    if me == 0:
        small = torch.zeros(n, dtype=torch.int8)
        raises(bad, lambda: group.gather_single(small, torch.ones(1)), "int8", "float32")


def inference(n, me):
    """Tensors of inference mode are written by threads of the group, which are not in that mode."""
    to, source = (me + 1) % n, (me - 1) % n
    with torch.inference_mode():
        mine, box = torch.full((2,), float(me)), turned(torch.zeros(2, 3))
        rows, parts = ([torch.zeros(2) for _ in range(n)] for _ in range(2))
        bits, flipped = torch.tensor([me]), turned(torch.ones(2, 3))
        works = [
            dist.all_gather(rows, mine, async_op=True),
            dist.all_to_all(parts, [mine] * n, async_op=True),
            dist.all_reduce(flipped, async_op=True),
            dist.all_reduce(bits, dist.ReduceOp.BOR, async_op=True),
        ]
        works += [dist.isend(torch.full((2, 3), float(me)), to), dist.irecv(box, source)] if n > 1 else []
        for work in works:
            work.wait()
        for made in (rows, parts):
            same(torch.stack(made), torch.arange(float(n)).repeat(2, 1).t(), "rows")
        same(flipped, torch.full((2, 3), float(n)), "all_reduce")
        same(bits, torch.tensor([sum(1 << i for i in range(8) if any(r >> i & 1 for r in range(n)))]), "bits")
        same(box, torch.full((2, 3), float(source)), "message")


class LostStore:
    def wait(self, keys, limit):
        raise RuntimeError("the connection was closed")


def lost_store(n, me):
    """A group whose store fails at once is not said to have waited for its whole limit."""
    make = lambda: ccl.torch.ProcessGroup(LostStore(), 1, 2, timedelta(seconds=60), "part")  # noqa: E731
    raises(ccl.NetworkError, make, "'part'", "store has failed", "was closed")


def lazy_parts(n, me):
    """Parts of lists that are conjugated or negated views move as the numbers that they are."""
    group = dist.group.WORLD
    whole = torch.arange(2.0 * n).view(n, 2)
    ones = [torch.zeros(2) for _ in range(n)]
    group.alltoall(ones, list(torch._neg_view(whole).unbind())).wait()
    same(torch.stack(ones), -whole[me].expand(n, 2), "all_to_all of negated views")
    twos = [torch.zeros(2, dtype=torch.complex64) for _ in range(n)]
    group.alltoall(twos, list((whole * 1j).conj().unbind())).wait()
    same(torch.stack(twos), (whole[me] * -1j).expand(n, 2), "all_to_all of conjugated views")
    rows = torch._neg_view(torch.zeros(n, 2))
    dist.all_gather(list(rows.unbind()), whole[me])
    same(rows.resolve_neg(), whole, "all_gather into negated views")
    out = torch.zeros(me + 1)
    dist.reduce_scatter(out, [torch._neg_view(torch.ones(r + 1)) for r in range(n)])
    same(out, torch.full((me + 1,), -float(n)), "reduce_scatter of negated views")


def callbacks(n, me):
    """A callback of a future makes a call of its group and waits for it."""

    def again(_):
        data = torch.full((2,), 1.0)
        dist.all_reduce(data)
        return data

    if me == 0:
        time.sleep(0.3)  # the others' futures are not complete when they get the callback
    result = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(again).wait()
    same(result, torch.full((2,), float(n)), "sum in a callback")
    futures = []
    if me == 0:
        time.sleep(0.3)
    for _ in range(8):
        work = dist.all_reduce(torch.ones(2), async_op=True)
        futures.append(work.get_future().then(lambda done: done.value()[0].sum().item()))
    assert [future.wait() for future in futures] == [2.0 * n] * 8
    if me == 0:
        time.sleep(0.3)
    wrong = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda _: 1 / 0)
    raises(Exception, wrong.wait, "division by zero")
    for turn in range(20):  # `wait` of the work completes its future, too
        if me == turn % n:
            time.sleep(0.01)
        work = dist.all_reduce(torch.ones(2), async_op=True)
        future = work.get_future()
        callback = future.then(lambda _, work=work: work.wait())
        second = work.get_future()  # completed after that callback, by the same thread
        work.wait()
        assert future.done() and second.done(), turn
        same(future.value()[0], torch.full((2,), float(n)), "value after wait")
        assert callback.wait() is True
    dist.barrier()


def late_coalesced(n, me):
    """A limit on coalesced calls raises what one on a single call raises."""
    dist.all_reduce(torch.ones(1))
    if me == 0:
        wait_for_others(n, me)
        return
    with dist._coalescing_manager(dist.group.WORLD, torch.device("cpu"), async_ops=True) as manager:
        dist.all_gather_into_tensor(torch.empty(n), torch.ones(1))
    error = raises(ccl.TimedOutError, lambda: manager.works[0].wait(timedelta(seconds=0.3)), "coalesced", "0.3 s")
    assert error.rank == me
    wait_for_others(n, me)


def broken_message(n, me):
    """A sender that ends within a message fails its receive at once."""
    if me == 1:
        group = dist.group.WORLD
        work = dist.isend(torch.ones(1), 0)
        work.wait()
        comm = group._messages._out[0]._comm
        header = torch.tensor([0, 16])
        comm._core.messages([(True, header.data_ptr(), 2, _tensors.INT64, 1)], None)
        time.sleep(0.5)  # the receiver waits for the data
        comm.abort("the test ends it")
    elif me == 0:
        box = torch.zeros(4)
        dist.recv(box[:1], 1)
        begin = time.monotonic()
        raises(ccl.Error, lambda: dist.recv(box, 1), "the test ends it")
        assert time.monotonic() - begin < 30
    wait_for_others(n, me)


def given_up(n, me):
    """A send whose deadline passes while it waits for its turn leaves those behind it to the thread."""
    group = dist.group.WORLD
    dist.barrier()
    if me == 0:
        group._timeout_s, limit = 1.0, group._timeout_s
        first, second = (dist.isend(torch.full((1,), value), 1) for value in (1.0, 2.0))
        raises(ccl.TimedOutError, second.wait, "rank 1 is late")
        group._timeout_s = limit
        dist.barrier()
        first.wait()
        dist.isend(torch.full((1,), 3.0), 1).wait()
    elif me == 1:
        dist.barrier()
        for value in (1.0, 3.0):
            box = torch.zeros(1)
            dist.recv(box, 0)
            assert box[0] == value, box


def shared_store(n, me):
    """Ends the group, and returns a store that all ranks have."""
    dist.barrier()
    old = dist.distributed_c10d._get_default_store()
    if me == 0:
        store = dist.TCPStore("127.0.0.1", 0, n, True, wait_for_workers=False, use_libuv=False)
        old.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(old.get("port")), n, False, use_libuv=False)
    dist.destroy_process_group()
    return store


def never_received(n, me):
    """A message that nobody receives does not mislead the receivers of a later group."""
    store = shared_store(n, me)
    ccl.torch._group.END_S = 1.0
    limit = timedelta(seconds=20)
    dist.init_process_group("ccl_comm", store=store, rank=me, world_size=n, timeout=limit)
    if me == 0:
        work = dist.isend(torch.zeros(1), 1)
        time.sleep(0.5)  # it is being sent
    dist.destroy_process_group()
    if me == 0:  # its thread still waits for the receiver to connect
        raises(ccl.AbortedError, work.wait, "the group has ended")
    dist.init_process_group("ccl_comm", store=store, rank=me, world_size=n, timeout=limit)
    if me == 0:
        time.sleep(1)  # the receiver looks into the store first
        dist.send(torch.ones(1), 1)
    elif me == 1:
        box = torch.zeros(1)
        dist.recv(box, 0)
        assert box[0] == 1


def one_store(n, me):
    """Groups that come one after the other with one store."""
    store = shared_store(n, me)
    for turn in range(3):
        if me == 0:
            time.sleep(0.5)  # the others look into the store first
        dist.init_process_group("ccl_comm", store=store, rank=me, world_size=n, timeout=timedelta(seconds=20))
        data = torch.ones(1)
        dist.all_reduce(data)
        assert data[0] == n
        for work in [dist.isend(data, (me + 1) % n), dist.irecv(torch.ones(1), (me - 1) % n)]:
            work.wait()
        if turn < 2:
            dist.barrier()
            dist.destroy_process_group()


def late_end(n, me):
    """A rank that is late is waited for at the end of a group; one that has left it is not."""
    _ending.END_S = 1.0
    dist.all_reduce(torch.ones(1))
    part = dist.new_group()
    data = torch.ones(1)
    if me == 1:
        time.sleep(3)
        dist.all_reduce(data, group=part)
    else:
        dist.all_reduce(data, group=part, async_op=True)
    dist.destroy_process_group(part)
    assert data[0] == n, data
    part = dist.new_group()
    wait_for_others(n, me)  # a rank that is late has it, too
    begin = time.monotonic()
    if me != 1:  # rank 1 ends the group without the call
        work = dist.all_reduce(torch.ones(1), group=part, async_op=True)
    dist.destroy_process_group(part)
    assert time.monotonic() - begin < 20, time.monotonic() - begin
    if me != 1:
        raises(ccl.Error, work.wait)


def played_end(n, me):
    """A kernel that does not end, as the ranks that it waits for are gone, ends no wait of 60 s."""
    dist.all_reduce(torch.ones(1))
    played_cuda.Mark.ended = me != 0
    work = dist.all_reduce(torch.ones(1), async_op=True)
    begin = time.monotonic()
    dist.group.WORLD.shutdown()
    assert time.monotonic() - begin < 40, time.monotonic() - begin
    if me == 0:
        raises(ccl.Error, work.wait)


def captured(n, me):
    """Calls that a graph captures: tensors are kept until they are waited for, a barrier comes after."""
    dist.all_reduce(torch.ones(1))
    gathered, kept = torch.empty(1000 * n), torch.ones(1000)
    alone = sys.getrefcount(kept)
    played_cuda.capturing = True
    first = dist.all_gather_into_tensor(gathered, kept, async_op=True)
    second = dist.all_reduce(torch.ones(4), async_op=True)
    raises(ccl.InvalidUsageError, dist.barrier, "captures a CUDA graph", f"rank {me}")
    del first
    assert sys.getrefcount(kept) > alone, "the input of a captured call was let go"
    second.wait()
    assert sys.getrefcount(kept) == alone, "the input is kept although a stream waits for the call"
    third = dist.all_reduce(kept, async_op=True)
    assert second.is_completed() and third.wait(timedelta(seconds=1))
    played_cuda.capturing = False
    dist.barrier()
    assert third.is_completed() and third.is_success()
    dist.all_reduce(torch.ones(4), async_op=True).wait()
    dist.barrier()


def broken_device(n, me):
    """An error of CUDA that the group's thread finds is that of later calls."""
    dist.all_reduce(torch.ones(1))
    played_cuda.Mark.ended = False
    work = dist.all_reduce(torch.ones(4), async_op=True)
    wait_for_others(n, me)
    played_cuda.Mark.broken = True
    end = time.monotonic() + 20
    while dist.group.WORLD._gpu._failure is None and time.monotonic() < end:
        time.sleep(0.01)
    raises(RuntimeError, lambda: dist.all_reduce(torch.ones(4)), "illegal memory access")
    raises(RuntimeError, work.wait, "illegal memory access")
    played_cuda.Mark.broken = False


def broken_batch(n, me):
    """Messages that cannot be run fail, whoever runs them; those of a region fail as one."""
    dist.all_reduce(torch.ones(1))
    gpu = dist.group.WORLD._gpu

    def fail(*given):
        raise TypeError("no messages here")

    gpu.core.messages, messages = fail, gpu.core.messages
    raises(TypeError, dist.isend(torch.ones(1), (me + 1) % n).wait, "no messages")
    gpu.core.messages = messages
    played_cuda.Mark.ended = False
    works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(2)]
    whole = ccl.torch._group.joined_on_gpu("two calls", gpu, works)
    wait_for_others(n, me)
    gpu.comm.abort("the test ends it")
    played_cuda.Mark.ended = True
    assert isinstance(whole.exception(), ccl.AbortedError), whole.exception()
    raises(ccl.AbortedError, whole.wait)


def forked(n, me):
    """A forked process that ends as any other leaves the group of its parent alone."""
    import atexit
    import os

    data = torch.ones(1)
    dist.all_reduce(torch.ones(1))
    pending = dist.all_reduce(data, async_op=True) if me else None  # until rank 0 makes it
    child = os.fork()
    if child == 0:
        begin = time.monotonic()
        atexit._run_exitfuncs()
        os._exit(0 if time.monotonic() - begin < 20 else 1)
    end = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        assert time.monotonic() < end, "the forked process does not end"
        time.sleep(0.05)
    assert ended[1] == 0, "the forked process waits for the group of its parent"
    work = pending or dist.all_reduce(data, async_op=True)
    work.wait()
    assert data[0] == n


def detail(n, me):
    """PyTorch's debug level DETAIL compares the calls of all ranks, as it does for gloo and NCCL."""
    data = torch.ones(2 + (me == 1))
    for level in (dist.DebugLevel.INFO, dist.DebugLevel.DETAIL):
        dist.set_debug_level(level)
        group = dist.new_group(timeout=timedelta(seconds=20))
        same(sum_of(torch.ones(3), group), torch.full((3,), float(n)), "sum")
        if level == dist.DebugLevel.DETAIL:
            raises(ccl.MismatchError, lambda: dist.all_reduce(data, group=group), "2", "3")
        dist.destroy_process_group(group)
        dist.barrier()


def sum_of(data, group):
    dist.all_reduce(data, group=group)
    return data


def joined(n, me):
    """C++ code keeps the work of an all-reduce that Python has dropped: that of DDP's join."""
    model = torch.nn.Linear(5, 5, bias=False)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    rows = torch.full((1, 5), 50.0)
    for by_all in (False, True):
        with parallel.join(divide_by_initial_world_size=by_all):
            for step in range(3 + 2 * me):  # of each rank a different number
                parallel(rows).sum().backward()
                active = sum(3 + 2 * rank > step for rank in range(n))
                expected = 50.0 * active / (n if by_all else active)
                assert torch.allclose(model.weight.grad, torch.full((5, 5), expected)), (step, by_all)
                parallel.zero_grad()
    work = dist.all_reduce(torch.ones(2000), async_op=True)
    work.wait()
    work._tensors = None  # as if it had been dropped, and kept
    raises(ccl.InvalidUsageError, work.result, "was dropped")


if __name__ == "__main__":
    rank_torch.main(globals())
