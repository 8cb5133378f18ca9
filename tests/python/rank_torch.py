"""One of the ranks of test_torch.py. The arguments name the cases. Results are computed here."""

import os
import sys
import threading
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

import ccl
import ccl.torch

warnings.filterwarnings("ignore", category=FutureWarning)  # newer names of operations
OPS = dist.ReduceOp
NAMES = {torch.int8: "int8", torch.uint8: "uint8", torch.int16: "int16", torch.int32: "int32",
         torch.int64: "int64", torch.float16: "half", torch.bfloat16: "bfloat16",
         torch.float32: "float", torch.float64: "double"}  # fmt: skip
BUILT = ccl.versions()["reductions on CPU ranks"].split(", ")
REDUCED = [dtype for dtype, name in NAMES.items() if name in BUILT]
PLAYED = "PLAYED_CUDA" in os.environ  # tensors in CPU memory count as those of a GPU
ON_CUDA = "ON_CUDA" in os.environ  # tensors are on the GPU with the number of the rank
if PLAYED:
    import played_cuda

    played_cuda.play()
    REDUCED = [torch.float32]  # all that the library of the tests reduces
if ON_CUDA:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.set_default_device(f"cuda:{os.environ['LOCAL_RANK']}")
    LIBRARY = {"float": "float", "bfloat16": "bfloat16", "float16": "half", "std::int64_t": "int64"}
    BUILT = [LIBRARY.get(one) for one in ccl._versions._build.library_types.split(";")]
    REDUCED = [dtype for dtype, name in NAMES.items() if name in BUILT]
GPUS = PLAYED or ON_CUDA
SIMPLE = (OPS.SUM, OPS.AVG, OPS.MIN, OPS.MAX) if GPUS else (OPS.SUM, OPS.AVG, OPS.MIN, OPS.MAX, OPS.PRODUCT)
MOVED = [*NAMES, torch.bool, torch.complex64]
LATE_S = 6  # deadline of the cases in which a rank is late; also that of the creation
COUNTS = [0, 1, 7, 1000, 70001]


def raises(kind, call, *words):
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def same(got, expected, what):
    assert got.dtype == expected.dtype and got.shape == expected.shape, (what, got, expected)
    assert torch.equal(got, expected), f"{what}: {got} is not {expected}"


def values(rank, count, dtype):
    """Small numbers, whose sums and products are exact in every type."""
    return (1 + (torch.arange(count) + rank) % 2).to(dtype)


def moved(rank, count, dtype):
    return (torch.arange(count) * (rank + 1) % 97).to(dtype)


def reduced(op, ranks, count, dtype):
    all = torch.stack([values(r, count, torch.float64) for r in range(ranks)])
    if op is OPS.AVG:
        sums = all.sum(0) / ranks
        return (sums if dtype.is_floating_point else sums.trunc()).to(dtype)
    how = {OPS.SUM: all.sum, OPS.PRODUCT: all.prod, OPS.MIN: all.amin, OPS.MAX: all.amax}
    return how[op](0).to(dtype)


def reductions(n, me):
    assert torch.float32 in REDUCED
    for dtype in REDUCED:
        for op in SIMPLE:
            for count in COUNTS:
                what = f"{op} of {count} {dtype}"
                expected = reduced(op, n, count, dtype)
                data = values(me, count, dtype)
                dist.all_reduce(data, op)
                same(data, expected, what)
                data = values(me, count, dtype)
                dist.reduce(data, 1 % n, op)
                same(data, expected if me == 1 % n else values(me, count, dtype), "reduce, " + what)
            count = 5 * n
            expected = reduced(op, n, count, dtype)[5 * me : 5 * me + 5]
            out = torch.empty(5, dtype=dtype)
            dist.reduce_scatter_tensor(out, values(me, count, dtype), op)
            same(out, expected, f"reduce_scatter_tensor, {op} {dtype}")
            out = torch.empty(5, dtype=dtype)
            dist.reduce_scatter(out, [t.clone() for t in values(me, count, dtype).chunk(n)], op)
            same(out, expected, f"reduce_scatter, {op} {dtype}")
    if not GPUS and "uint8" in BUILT:
        check_bool(n, me)
    check_other_reductions(n, me)


def check_bool(n, me):
    data = torch.tensor([me == 0, True, False])
    dist.all_reduce(data, OPS.SUM)
    same(data, torch.tensor([True, True, False]), "sum of bool")
    data = torch.tensor([me == 0, True, False])
    dist.all_reduce(data, OPS.PRODUCT)
    same(data, torch.tensor([n == 1, True, False]), "product of bool")
    data = torch.tensor([me == 0, True, False])
    dist.all_reduce(data, OPS.BXOR)
    same(data, torch.tensor([True, n % 2 == 1, False]), "xor of bool")


def check_other_reductions(n, me):
    bits = torch.tensor([1 << me, 3 + me], dtype=torch.int32)
    for op, how in ((OPS.BAND, torch.bitwise_and), (OPS.BOR, torch.bitwise_or), (OPS.BXOR, torch.bitwise_xor)):
        expected = torch.tensor([1, 3], dtype=torch.int32)
        for r in range(1, n):
            expected = how(expected, torch.tensor([1 << r, 3 + r], dtype=torch.int32))
        data = bits.clone()
        dist.all_reduce(data, op)
        same(data, expected, str(op))
        out = torch.empty(2, dtype=torch.int32)
        dist.reduce_scatter_tensor(out, bits.repeat(n), op)
        same(out, expected, f"reduce_scatter, {op}")
    raises(ccl.InvalidArgumentError, lambda: dist.all_reduce(torch.ones(2), OPS.BAND), "BAND")
    data = torch.full((3,), 1 + 1j * me)
    dist.all_reduce(data)
    same(data, torch.full((3,), n + 1j * (n * (n - 1) // 2)), "sum of complex")
    data = torch.full((3,), me + 1.0)
    dist.all_reduce(data, dist._make_nccl_premul_sum(2.0))
    same(data, torch.full((3,), float(n * (n + 1))), "premultiplied sum")
    parts = [torch.full((r + 1,), float(me)) for r in range(n)]  # sizes that differ
    out = torch.empty(me + 1)
    dist.reduce_scatter(out, parts)
    same(out, torch.full((me + 1,), float(n * (n - 1) // 2)), "uneven reduce_scatter")


def movements(n, me):
    for dtype in MOVED:
        for count in COUNTS:
            what = f"{count} {dtype}"
            mine = moved(me, count, dtype)
            all = [moved(r, count, dtype) for r in range(n)]
            data = mine.clone()
            dist.broadcast(data, n - 1)
            same(data, all[n - 1], "broadcast " + what)
            rows = [torch.empty(count, dtype=dtype) for _ in range(n)]
            dist.all_gather(rows, mine)
            for row, expected in zip(rows, all):
                same(row, expected, "all_gather " + what)
            flat = torch.empty(n * count, dtype=dtype)
            dist.all_gather_into_tensor(flat, mine)
            same(flat, torch.cat(all), "all_gather_into_tensor " + what)
            rows = [torch.empty(count, dtype=dtype) for _ in range(n)] if me == 1 % n else None
            dist.gather(mine, rows, 1 % n)
            for row, expected in zip(rows or [], all):
                same(row, expected, "gather " + what)
            out = torch.empty(count, dtype=dtype)
            dist.scatter(out, all if me == 2 % n else None, 2 % n)
            same(out, mine, "scatter " + what)
            rows = [torch.empty(count, dtype=dtype) for _ in range(n)]
            dist.all_to_all(rows, [mine.clone() for _ in range(n)])
            same(torch.cat(rows), torch.cat(all), "all_to_all " + what)
            flat = torch.empty(n * count, dtype=dtype)
            dist.all_to_all_single(flat, mine.repeat(n))
            same(flat, torch.cat(all), "all_to_all_single " + what)
    counts = [[(3 * i + 5 * j) % 4 for j in range(n)] for i in range(n)]  # rows of i for j
    mine = torch.arange(2.0 * sum(counts[me])).view(-1, 2) + 1000 * me
    received = [counts[r][me] for r in range(n)]
    expected = [
        (torch.arange(2.0 * sum(counts[r])).view(-1, 2) + 1000 * r).split(counts[r])[me] for r in range(n)
    ]
    out = torch.empty(sum(received), 2)
    dist.all_to_all_single(out, mine, received, counts[me])
    same(out, torch.cat(expected), "uneven all_to_all_single")
    rows = [torch.empty(c, 2) for c in received]
    dist.all_to_all(rows, list(mine.split(counts[me])))
    same(torch.cat(rows), torch.cat(expected), "uneven all_to_all")
    rows = [torch.empty(r + 1) for r in range(n)]
    dist.all_gather(rows, torch.full((me + 1,), float(me)))
    for r, row in enumerate(rows):
        same(row, torch.full((r + 1,), float(r)), "uneven all_gather")
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": me})
    assert objects == [{"rank": r} for r in range(n)], objects


def layouts(n, me):
    """Tensors that are not contiguous."""
    bad = ccl.InvalidArgumentError
    data = torch.full((4, 6), float(me)).t()  # dense in another order
    dist.all_reduce(data)
    same(data, torch.full((6, 4), n * (n - 1) / 2), "transposed")
    image = torch.full((2, 3, 4, 4), 1.0).contiguous(memory_format=torch.channels_last)
    dist.all_reduce(image)
    same(image, torch.full((2, 3, 4, 4), float(n)), "channels last")
    raises(bad, lambda: dist.all_reduce(torch.ones(4, 6)[:, :3]), "not contiguous", "strides")
    raises(bad, lambda: dist.send(torch.ones(8)[::2], (me + 1) % n), "not contiguous")
    raises(bad, lambda: dist.all_to_all_single(torch.ones(n, n), torch.ones(n, n).t()), "not contiguous")
    table = torch.zeros(5, n)
    dist.all_gather(list(table.t()), torch.full((5,), float(me)))  # columns
    same(table, torch.arange(float(n)).repeat(5, 1), "columns")
    part = torch.empty(5)
    dist.scatter(part, list(table.t()) if me == 0 else None, 0)
    same(part, torch.full((5,), float(me)), "scatter of columns")
    raises(NotImplementedError, lambda: dist.all_reduce(torch.ones(3).to_sparse()), "sparse")
    raises(NotImplementedError, lambda: dist.all_reduce(torch.ones(3, device="meta")), "meta")
    raises(bad, lambda: dist.all_gather_into_tensor(torch.ones(n + 1), torch.ones(1)), f"{n + 1} elements")
    raises(bad, lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(2 * n + 1)), f"{2 * n + 1}")
    group = dist.group.WORLD
    raises(bad, lambda: group.alltoall_base(torch.ones(n), torch.ones(n), [1], [1] * n), "[1]", str(n))
    raises(bad, lambda: group.allgather([[torch.ones(1)]], [torch.ones(1)]), "1 tensors", f"{n} ranks")
    raises(bad, lambda: group.send([torch.ones(1)], n, 0), f"rank {n}")
    dist.barrier()  # nothing of this has harmed the group


def crossing(n, me):
    """All ranks send first, or receive first; messages between two ranks match in order."""
    to, source = (me + 1) % n, (me - 1) % n
    for count in (0, 1, 70001):
        out, mine = torch.zeros(count), torch.full((count,), float(me))
        for calls in ((dist.isend, dist.irecv), (dist.irecv, dist.isend)):
            works = [call(mine, to) if call is dist.isend else call(out, source) for call in calls]
            for work in works:
                work.wait()
            same(out, torch.full((count,), float(source)), "crossing messages")
            out.zero_()
        batch = [dist.P2POp(dist.isend, mine, to), dist.P2POp(dist.irecv, out, source)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        same(out, torch.full((count,), float(source)), "batch")
    box = torch.zeros(2)  # nobody waits for the send
    dist.isend(torch.full((2,), float(me)), to)
    dist.irecv(box, source).wait()
    same(box, torch.full((2,), float(source)), "dropped send")


def played_calls(n, me):
    """What streams and events of played GPUs are told."""
    log, data = played_cuda.log, torch.ones(4)
    dist.all_reduce(data)
    log.clear()
    dist.all_reduce(data)  # on the caller's stream
    assert log == [], log
    work = dist.all_reduce(data, async_op=True)
    assert log == [("wait_stream", "side", "current"), ("record", "side")], log
    log.clear()
    work.wait()
    assert log == [("wait_event", "current", "side")], log
    log.clear()
    works = [dist.isend(data, (me + 1) % n), dist.irecv(torch.empty(4), (me - 1) % n)]
    assert log == [("record", "current")] * 2, log
    works[1].wait()  # both messages run
    assert log[2:] == [("wait_event", "side", "current")] * 2 + [("record", "side"), ("wait_event", "current", "side")]
    played_cuda.Mark.ended = False
    kept = torch.ones(1000)
    alone = sys.getrefcount(kept)
    work = dist.all_gather_into_tensor(torch.empty(1000 * n), kept, async_op=True)
    assert not work.is_completed() and not work.is_success()
    raises(ccl.TimedOutError, lambda: work.wait(timedelta(seconds=0.1)), "all_gather", "0.1 s")
    del work
    time.sleep(0.1)
    assert sys.getrefcount(kept) > alone, "the tensor of a call that runs was let go"
    played_cuda.Mark.ended = True
    end = time.monotonic() + 20
    while sys.getrefcount(kept) > alone and time.monotonic() < end:
        time.sleep(0.01)
    assert sys.getrefcount(kept) == alone, "the tensor of a call that has ended is kept"


def own_messages(n, me):
    """Messages of one rank to itself, before any call that connects the GPUs of the group."""
    log, group = played_cuda.log, dist.group.WORLD
    if me == 0:
        sent, got = torch.arange(5.0), torch.zeros(5)
        log.clear()
        works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, 0), dist.P2POp(dist.isend, sent, 0)])
        assert all(work.wait() and work.is_success() for work in works)
        same(got, sent, "a message to itself")
        assert log == [("record", "current")] * 2 + [("wait_event", "side", "current"), ("keep", "side")] * 2 + [
            ("record", "side")] + [("wait_event", "current", "side")] * 2, log  # fmt: skip
        check_own_orders()
        assert group._gpu is None, "the rank has waited for others"
    dist.barrier()
    to, source = (me + 1) % n, (me - 1) % n
    mine, own, other = torch.full((3,), float(me)), torch.zeros(3), torch.zeros(3)
    batch = [dist.P2POp(dist.isend, mine, me), dist.P2POp(dist.isend, mine, to),
             dist.P2POp(dist.irecv, other, source), dist.P2POp(dist.irecv, own, me)]  # fmt: skip
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    same(own, mine, "the own message of a batch")
    same(other, torch.full((3,), float(source)), "a message of a batch")
    with dist._coalescing_manager(group, torch.device("cpu"), async_ops=True) as manager:
        dist.isend(mine + 1, me), dist.irecv(own, me)
    manager.wait()
    same(own, mine + 1, "an own message of a region")
    part = dist.new_group()
    lone = dist.isend(mine, me, group=part)
    dist.destroy_process_group(part)
    raises(ccl.AbortedError, lone.wait, "has ended")
    dist.barrier()
    group._gpu.fail(ccl.AbortedError("the test ends it"))
    raises(ccl.AbortedError, lambda: dist.isend(mine, me), "the test")


def check_own_orders():
    """They match in order, whatever the shape and the type; what does not fit fails both ends."""
    first, second = torch.zeros(2), torch.zeros(2)
    late = [dist.isend(torch.full((2,), value), 0) for value in (1.0, 2.0)]
    assert not late[0].is_completed() and not late[0].is_success() and late[0].exception() is None
    error = raises(ccl.InvalidUsageError, late[0].wait, "other end", "send to rank 0")
    raises(type(error), late[0].get_future)
    works = [dist.irecv(first, 0), dist.irecv(second, 0), *late]
    for work in works:
        assert work.wait(timedelta(seconds=5)) and work.is_completed()
    same(first, torch.full((2,), 1.0), "the first")
    same(second, torch.full((2,), 2.0), "the second")
    assert works[1].get_future().wait()[0] is second and works[1].result()[0] is second
    across, columns = torch.arange(6.0).view(2, 3), torch.zeros(3, 2).t()
    words, empty = torch.zeros(3, dtype=torch.int64), torch.zeros(0)
    for source, target in ((across, columns), (across, words), (columns, across.view(6)), (empty, empty.view(0, 7))):
        expected = source.contiguous().view(-1).view(target.dtype).view(target.shape)
        works = [dist.irecv(target, 0), dist.isend(source, 0)]
        works[1].wait(), works[0].wait()
        same(target, expected, "a message of another shape")
    works = [dist.irecv(torch.zeros(3), 0), dist.isend(torch.zeros(2), 0)]
    for work in works:
        assert work.is_completed() and not work.is_success()
        raises(ccl.MismatchError, work.wait, "8 bytes", "12")


def failed_communicator(n, me):
    """A kernel ends, because its communicator fails: the work has the error, as have later calls."""
    dist.all_reduce(torch.ones(1))
    gpu = dist.group.WORLD._gpu
    played_cuda.Mark.ended = False
    work = dist.all_reduce(torch.ones(4), async_op=True)
    wait_for_others(n, me)
    gpu.comm.abort("the test ends it")
    played_cuda.Mark.ended = True
    assert work.is_completed() and not work.is_success()
    raises(ccl.AbortedError, work.wait)
    raises(ccl.AbortedError, lambda: dist.all_reduce(torch.ones(4)))


def messages(n, me):
    to, source = (me + 1) % n, (me - 1) % n
    out = torch.zeros(70001)
    receive = dist.irecv(out, source)  # every rank receives first
    send = dist.isend(torch.full((70001,), float(me)), to)
    receive.wait(), send.wait()
    same(out, torch.full((70001,), float(source)), "crossing messages")
    boxes = [torch.zeros(2), torch.zeros(3, dtype=torch.int64)]
    works = [dist.isend(torch.full((3,), me), to, tag=7), dist.isend(torch.full((2,), 0.5), to, tag=3)]
    works += [dist.irecv(boxes[0], source, tag=3), dist.irecv(boxes[1], source, tag=7)]
    for work in works:
        work.wait()
    same(boxes[0], torch.full((2,), 0.5), "tag 3")
    same(boxes[1], torch.full((3,), source), "tag 7")
    check_any_source(n, me)
    dist.barrier()  # the next messages have a tag that rank 0 has received from any rank
    both = [dist.P2POp(dist.isend, torch.tensor([me]), to), dist.P2POp(dist.irecv, boxes[1][:1], source)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    assert boxes[1][0] == source
    if me == 0:
        dist.send(torch.ones(3), 1)
    elif me == 1:
        raises(ccl.MismatchError, lambda: dist.recv(torch.ones(4), 0), "16 bytes", "12", "rank 0")
    empty = torch.empty(0)
    works = [dist.isend(empty, to), dist.irecv(torch.empty(0), source)]
    for work in works:
        work.wait()
    check_own(me)


def check_own(me):
    """Messages of a rank to itself: those of a GPU arrive, as with NCCL."""
    sent, got = torch.arange(5.0) + me, torch.zeros(5)
    both = [dist.P2POp(dist.irecv, got, me), dist.P2POp(dist.isend, sent, me)]
    if not ccl.torch._devices.is_gpu(sent):
        raises(ccl.InvalidArgumentError, lambda: dist.batch_isend_irecv(both), "itself", "CPU")
        return
    for work in dist.batch_isend_irecv(both):
        work.wait()
    same(got, sent, "a message to itself")


def check_any_source(n, me):
    if me:
        dist.send(torch.tensor([me, me * me]), 0, tag=me % 2)
        return
    seen, box = [], torch.zeros(2, dtype=torch.int64)
    for i in range(1, n):
        seen.append(dist.recv(box, tag=i % 2))
        same(box, torch.tensor([seen[-1], seen[-1] ** 2]), "any source")
    assert sorted(seen) == list(range(1, n)), seen


def works(n, me):
    group = dist.group.WORLD
    data = [torch.full((1000,), float(me)) for _ in range(5)]
    queued = [dist.all_reduce(t, async_op=True) for t in data]
    done = queued[-1].get_future().then(lambda f: f.value()[0].sum().item()).wait()
    assert done == 1000 * n * (n - 1) / 2, done
    for work in queued:
        assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
    if not GPUS:
        check_late_receive(me)
    check_coalescing(n, me, group, data)


def check_late_receive(me):
    late = torch.zeros(1)
    if me == 0:
        work = dist.irecv(late, 1)
        assert not work.is_completed()
        raises(ccl.TimedOutError, lambda: work.wait(timedelta(seconds=0.2)), "rank 1 is late", "0.2 s")
        dist.barrier()
        work.wait()
        assert late[0] == 5
    else:
        dist.barrier()
        if me == 1:
            dist.send(torch.tensor([5.0]), 0)


def check_coalescing(n, me, group, data):
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for tensor in data:
            dist.all_reduce(tensor, OPS.MAX)
    manager.wait()
    with dist._coalescing_manager(group, data[0].device, async_ops=True) as manager:
        outs = [torch.empty(n), torch.empty(2 * n)]
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, torch.full((i + 1,), float(me)))
    manager.wait()
    same(outs[0], torch.arange(float(n)), "coalesced all_gather")
    same(outs[1], torch.arange(float(n)).repeat_interleave(2), "coalesced all_gather")
    works = group.reduce_scatter_tensor_coalesced([torch.empty(1)], [torch.ones(n)], dist.ReduceScatterOptions())
    assert works.result()[0][0] == n
    assert dist.get_backend() == "ccl_comm" and group.name() == "ccl_comm"


def groups(n, me):
    pairs = [dist.new_group([a, b]) for a in range(n) for b in range(a + 1, n)]
    for group in pairs:  # groups that overlap
        if dist.get_rank(group) >= 0:
            data = torch.ones(3)
            dist.all_reduce(data, group=group)
            same(data, torch.full((3,), 2.0), "pair")
    evens = dist.new_group(list(range(0, n, 2)))
    if me % 2 == 0:
        ranks = dist.get_process_group_ranks(evens)
        data = torch.tensor([me])
        dist.broadcast(data, ranks[-1], group=evens)
        assert data[0] == ranks[-1]
        if len(ranks) > 1 and me in ranks[:2]:
            other = ranks[1] if me == ranks[0] else ranks[0]
            box = torch.zeros(1, dtype=torch.int64)
            works = [dist.irecv(box, other, group=evens), dist.isend(torch.tensor([me]), other, group=evens)]
            for work in works:
                work.wait()
            assert box[0] == other
        dist.destroy_process_group(evens)
        raises(ccl.AbortedError, lambda: evens.allreduce([data]).wait(), "ended")
    alone = dist.new_group([me], use_local_synchronization=True)
    data = torch.tensor([3.0])
    dist.all_reduce(data, group=alone)
    assert data[0] == 3
    cpu = torch.device("cpu")
    check_split(n, me)
    assert dist.group.WORLD._get_backend(cpu) is not None


def check_split(n, me):
    """Groups of a group; one rank is in none."""
    world = dist.group.WORLD
    for name in ("part 1", "part 2"):
        part = world.split_group([0] if me == 0 else list(range(1, n)), group_name=name)
        data = torch.full((3,), float(me))
        part.allreduce([data]).wait()
        same(data, torch.full((3,), 0.0 if me == 0 else n * (n - 1) / 2), "sum of a part")
        assert part.rank() == (0 if me == 0 else me - 1) and part.getGroupName() == name
        part.shutdown()
    none = world.split_group([0, 1], timedelta(seconds=9), group_name="two")
    assert (none is None) == (me > 1)
    if me < 2:
        row = torch.empty(2)
        none._allgather_base(row, torch.full((1,), float(me))).wait()
        same(row, torch.tensor([0.0, 1.0]), "rows of two")
        none.shutdown()


def functional(n, me):
    import torch.distributed._functional_collectives as collectives

    world = dist.group.WORLD
    mine = torch.full((2, 2), float(me))
    total = n * (n - 1) / 2
    same(collectives.all_reduce(mine, "sum", world) + 0, torch.full((2, 2), total), "all_reduce")
    rows = collectives.all_gather_tensor(mine, 0, world) + 0
    same(rows, torch.arange(float(n)).repeat_interleave(4).view(-1, 2), "all_gather_tensor")
    part = collectives.reduce_scatter_tensor(torch.full((n, 2), float(me)), "sum", 0, world) + 0
    same(part, torch.full((1, 2), total), "reduce_scatter_tensor")
    out = collectives.all_to_all_single(torch.full((n,), float(me)), None, None, world) + 0
    same(out, torch.arange(float(n)), "all_to_all_single")
    same(collectives.broadcast(mine, n - 1, world) + 0, torch.full((2, 2), n - 1.0), "broadcast")
    both = collectives.all_reduce_coalesced([mine, mine + 1], "sum", world)
    same(both[0] + n, both[1] + 0, "all_reduce_coalesced")
    same(both[1] + 0, torch.full((2, 2), total + n), "all_reduce_coalesced")
    both = collectives.all_gather_into_tensor_coalesced([mine[0], mine[1]], world)
    same(both[0] + both[1], 2 * torch.arange(float(n)).repeat_interleave(2), "all_gather_coalesced")
    both = collectives.reduce_scatter_tensor_coalesced([torch.ones(n)], "sum", [0], world)
    same(both[0] + 0, torch.full((1,), float(n)), "reduce_scatter_coalesced")


def operators(n, me):
    """Operators beside those of c10d, with played GPUs: rows whose counts are in memory."""
    from ccl.torch import ops

    stride, length = 4, 1024
    data = torch.zeros(n * stride, length)
    for to in range(n):
        for i in range(stride):
            data[to * stride + i] = 100 * me + 10 * to + i
    counts = torch.tensor([(me + to) % (stride + 1) for to in range(n)], dtype=torch.int32)
    for step in (ops.exchange_rows, torch.compile(ops.exchange_rows, fullgraph=True, backend="aot_eager")):
        arrived, got = step(data, counts, send_stride=stride, recv_stride=stride)
        assert got.tolist() == [(p + me) % (stride + 1) for p in range(n)], got
        for p in range(n):
            for i in range(got[p]):
                assert (arrived[p * stride + i] == 100 * p + 10 * me + i).all(), (p, i)
    bad = ccl.InvalidArgumentError
    raises(bad, lambda: ops.exchange_rows(data, counts[:-1], send_stride=4, recv_stride=4), "send_counts")
    raises(bad, lambda: ops.exchange_rows(data[1:], counts, send_stride=4, recv_stride=4), str(4 * n - 1))
    raises(bad, lambda: ops.exchange_rows(data.t(), counts, send_stride=4, recv_stride=4), "contiguous")
    raises(bad, lambda: ops.exchange_rows(torch.tensor(1.0), counts, send_stride=1, recv_stride=1), "shape ()")
    check_devices(bad, data, counts)
    alone = dist.new_group([me], use_local_synchronization=True)
    x, residual = torch.randn(3, 64).bfloat16(), torch.randn(3, 64).bfloat16()
    weight = torch.rand(64).bfloat16()
    h = x + residual
    expected = torch.nn.functional.rms_norm(h.float(), (64,), weight.float(), 1e-6)
    for fuse in (None, True):
        out, sums = ops.all_reduce_add_rms_norm(x, residual, weight, fuse=fuse, group=alone)
        same(sums, h, "residual")
        torch.testing.assert_close(out.float(), expected, rtol=0.01, atol=1e-3)
    raises(bad, lambda: ops.all_reduce_add_rms_norm(x, residual[:2], group=alone), "residual", "(3, 64)")
    raises(NotImplementedError, lambda: ops.all_reduce_add_rms_norm(x.double(), group=alone), "double")
    raises(NotImplementedError, lambda: ops.all_reduce_add_rms_norm(x))  # CPU ranks; GPUs alone


def check_devices(bad, data, counts):
    """Tensors of one call that are on two devices, both of which count as those of GPUs."""
    from ccl.torch import _devices, ops

    real, _devices.is_gpu = _devices.is_gpu, lambda tensor: True
    name, other = ops._name_of(None), torch.device("meta")  # the dispatcher would take the fake operator
    raises(bad, lambda: ops._exchange_rows(data, counts.to(other), 4, None, 4, name), "cpu", "meta")
    raises(bad, lambda: ops._add_rms_norm(data, data.to(other), None, 1e-6, None, name), "cpu", "meta")
    _devices.is_gpu = real


def training(n, me):
    """Gradients of data-parallel training are those of all data in one process."""
    torch.manual_seed(1)
    type = torch.float64 if torch.float64 in REDUCED else torch.float32
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(type)
    alone = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(type)
    alone.load_state_dict(model.state_dict())
    torch.manual_seed(2)
    data = torch.randn(4 * n, 8, dtype=type)
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0001)
    for _ in range(3):
        parallel(data[4 * me : 4 * me + 4]).square().mean().backward()
        alone(data).square().mean().backward()
    for got, expected in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(got.grad, expected.grad)


def late(n, me):
    """Rank 2 comes only when the others have given up; they name it."""
    dist.all_reduce(torch.ones(1))
    if me == 2:
        wait_for_others(n, me)
        return
    error = raises(ccl.TimedOutError, lambda: dist.all_reduce(torch.ones(1)), "rank 2")
    assert error.rank == me, error.rank
    raises(ccl.Error, lambda: dist.all_reduce(torch.ones(1)))
    wait_for_others(n, me)


def wait_for_others(n, me):
    """Returns when all ranks are here; the ranks of a group that has failed still share a store."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"here/{me}", "1")
    store.wait([f"here/{r}" for r in range(n)], timedelta(seconds=120))
    store.set(f"leaves/{me}", "1")
    if me == 0:  # its process holds the store
        store.wait([f"leaves/{r}" for r in range(n)], timedelta(seconds=120))


def late_message(n, me):
    if me == 0:
        raises(ccl.TimedOutError, lambda: dist.recv(torch.ones(1), 1, tag=4), "rank 1", "tag 4")
    wait_for_others(n, me)


def late_barrier(n, me):
    dist.all_reduce(torch.ones(1))
    if me == 1:
        wait_for_others(n, me)
        return
    call = lambda: dist.monitored_barrier(timeout=timedelta(seconds=1))  # noqa: E731
    raises(ccl.TimedOutError, call, "monitored_barrier", "rank 1")
    wait_for_others(n, me)


def late_gradients(n, me):
    """The error of a rank that does not come reaches a backward pass, through the future."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    if me != 2:
        raises(RuntimeError, lambda: model(torch.ones(1, 4)).sum().backward(), "rank 2")
    wait_for_others(n, me)


def abort(n, me):
    """A thread aborts while all ranks wait."""
    dist.all_reduce(torch.ones(1))
    group = dist.group.WORLD
    if me == 0:
        threading.Timer(0.3, group.abort).start()
        raises(ccl.AbortedError, lambda: dist.recv(torch.ones(1), 1), "aborted the group")
        return
    raises(ccl.AbortedError, lambda: dist.all_reduce(torch.ones(1)), "rank 0")


def main(cases=None):
    limit = LATE_S if sys.argv[1].startswith("late") else 60
    dist.init_process_group("ccl_comm", timeout=timedelta(seconds=limit))
    for case in sys.argv[1:]:
        (cases or globals())[case](dist.get_world_size(), dist.get_rank())
        print(f"rank {dist.get_rank()}: {case} is right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
