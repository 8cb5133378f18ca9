"""One of two ranks of test_torch_gpu.py, each with a GPU. The arguments name the cases."""

import os
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

import ccl
import ccl.torch

LATE_S = 6  # deadline of the case in which a rank is late


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


def busy(cycles=40_000_000):
    """Keeps the current stream busy for some 20 ms."""
    torch.cuda._sleep(cycles)


def communicator_torch(n, me):
    """Communicator with tensors, on streams that the caller gives."""
    comm = ccl.Communicator.from_env(device="local", timeout=60)
    assert comm.device == me and comm.memory_used > 0 and comm.host(0)
    torch.cuda.set_device(1 - me)  # the package leaves the device of the thread as it is
    comm.split(me).finalize()
    assert torch.cuda.current_device() == 1 - me
    torch.cuda.set_device(me)
    for dtype in (torch.float32, torch.bfloat16):
        for count in (1, 1000, 1 << 20):
            data = torch.full((count,), me + 1.0, dtype=dtype, device="cuda")
            out = comm.all_reduce(data, stream=torch.cuda.current_stream())
            same(out, torch.full((count,), n * (n + 1) / 2, dtype=dtype, device="cuda"), "sum")
    side = torch.cuda.Stream()
    for _ in range(20):  # memory that another stream uses is not given away
        data = torch.full((1 << 20,), me + 1.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            busy(2_000_000)
        out = comm.all_reduce(data, "max", stream=side)
        del data
        torch.full((1 << 20,), -1.0, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        assert (out == n).all()
    rows = comm.all_gather(torch.full((5,), me, device="cuda"), stream=torch.cuda.current_stream())
    assert rows.tolist() == [[r] * 5 for r in range(n)]
    box = torch.zeros(3, device="cuda")
    stream = torch.cuda.current_stream()
    comm.send_recv(torch.full((3,), float(me), device="cuda"), (me + 1) % n, box, (me - 1) % n, stream=stream)
    assert (box == (me - 1) % n).all()
    half = comm.split(me)
    assert half.ranks == 1
    half.finalize()
    comm.barrier()
    raises(ccl.InvalidArgumentError, lambda: comm.all_reduce(torch.ones(3)), "CPU memory")
    assert "rank" in comm.report() or comm.report() == ""
    torch.cuda.synchronize()
    comm.finalize()


def communicator_cupy(n, me):
    import cupy

    cupy.cuda.Device(me).use()
    comm = ccl.Communicator.from_env(device="local")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        data = cupy.full(100_000, me + 1, dtype="float32")
        out = cupy.empty_like(data)
        comm.all_reduce(data, out=out, stream=stream)
        new = comm.all_reduce(data, "max", stream=stream)
        stream.synchronize()
        assert bool((out == n * (n + 1) // 2).all()) and bool((new == n).all())
        table = cupy.arange(2 * n, dtype="int32") + 10 * me
        got = comm.all_to_all(table, stream=stream)
        stream.synchronize()
        assert got.tolist() == [x + 10 * r for r in range(n) for x in (2 * me, 2 * me + 1)]
    comm.finalize()


def streams(n, me):
    """A call waits for the current stream; `wait` makes the current stream wait, and not the host."""
    total = n * (n + 1) / 2
    warm = torch.ones(1, device="cuda")
    dist.all_reduce(warm)
    torch.cuda.synchronize()
    for round, async_op in enumerate((False, True, False, True)):
        data = torch.zeros(1 << 20, device="cuda")
        begin = time.monotonic()
        busy()
        data.fill_(me + 1.0)  # behind the busy kernel; the call must see it
        work = dist.all_reduce(data, async_op=async_op)
        if async_op:
            assert round < 2 or not work.is_completed()
            work.wait()
        twice = 2 * data
        queued = time.monotonic() - begin
        torch.cuda.synchronize()
        took = time.monotonic() - begin
        # The first call of each kind loads kernels, for which the driver waits.
        assert round < 2 or queued < 0.5 * took, f"the host waited {queued:.4f} of {took:.4f} s"
        assert (twice == 2 * total).all(), "the stream did not wait"
    other = torch.cuda.Stream()  # waits on another stream than the call's
    data = torch.full((1 << 20,), me + 1.0, device="cuda")
    work = dist.all_reduce(data, async_op=True)
    with torch.cuda.stream(other):
        work.wait()
        twice = 2 * data
    other.synchronize()
    assert (twice == 2 * total).all()
    future = dist.all_reduce(torch.full((9,), me + 1.0, device="cuda"), async_op=True).get_future()
    assert future.then(lambda f: f.value()[0].sum()).wait() == 9 * total
    work = dist.all_reduce(torch.ones(1 << 20, device="cuda"), async_op=True)
    assert work.wait(timedelta(seconds=30)) and work.is_completed() and work.is_success()


def memory(n, me):
    """Tensors live until the call has ended, although nobody keeps them or waits for the work."""
    for i in range(60):
        data = torch.full((1 << 20,), me + 1.0, device="cuda")
        out = torch.empty(n << 20, device="cuda")
        if i % 2:
            busy(1_000_000)
        dist.all_gather_into_tensor(out, data, async_op=True)  # the work is dropped
        check = torch.empty(1, device="cuda")
        work = dist.all_reduce(check.fill_(1), async_op=True)
        del data
        for _ in range(4):  # takes the memory, if it is free
            torch.full((1 << 20,), -7.0, device="cuda")
        work.wait()
        assert check.item() == n
        parts = out.view(n, -1)[:, 0].tolist()
        assert parts == [r + 1.0 for r in range(n)], parts
    pending = dist.group.WORLD._gpu._pending
    torch.cuda.synchronize()
    dist.all_reduce(check)
    end = time.monotonic() + 10
    while pending and time.monotonic() < end:
        time.sleep(0.01)
    assert not pending, "calls that have ended are kept"


def first_own(n, me):
    """Rank 0 alone sends itself a message, in the first call of a group; two streams; a graph."""
    store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
    group = ccl.torch._group.ProcessGroup(store, me, n, timedelta(seconds=60), "own")  # its GPUs are not connected
    if me == 0:
        for count in (1, 1 << 22):
            out, mine = torch.zeros(count, device="cuda"), torch.full((count,), 3.0, device="cuda")
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.current_stream())
                torch.cuda._sleep(10_000_000)
                mine.add_(1)  # before the copy
                send = group.send([mine], 0)
            receive = group.recv([out], 0)
            receive.wait()
            assert (out == 4).all()
            send.wait()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            works = [group.recv([out], 0), group.send([mine], 0)]
            for work in works:
                work.wait()
        mine.fill_(7)
        graph.replay()
        torch.cuda.synchronize()
        assert (out == 7).all()
        assert group._gpu is None
    group.shutdown()


def messages(n, me):
    to, source = (me + 1) % n, (me - 1) % n
    for count in (1, 1000, 1 << 22):
        out = torch.zeros(count, device="cuda")
        mine = torch.full((count,), float(me), device="cuda")
        works = [dist.isend(mine, to), dist.irecv(out, source)]  # all ranks send first
        for work in works:
            work.wait()
        assert (out == source).all()
        ops = [dist.P2POp(dist.irecv, out, source), dist.P2POp(dist.isend, mine + 1, to)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert (out == source + 1).all()
        ops = [dist.P2POp(dist.irecv, out, me), dist.P2POp(dist.isend, mine + 2, me)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert (out == me + 2).all()
    if me == 0:
        dist.send(torch.full((7,), 3, device="cuda"), 1)
    elif me == 1:
        box = torch.zeros(7, dtype=torch.int64, device="cuda")
        dist.recv(box, 0)
        assert (box == 3).all()
    raises(ccl.NotSupportedError, lambda: dist.recv(torch.ones(1, device="cuda")), "any rank")
    box = torch.zeros(2, device="cuda")  # messages for which nobody waits leave by themselves
    dist.isend(torch.full((2,), 5.0, device="cuda"), to)
    dist.irecv(box, source)
    time.sleep(0.5)
    torch.cuda.synchronize()
    assert (box == 5).all()


def graphs(n, me):
    """Captured calls run again with what is in memory then."""
    data, out = torch.zeros(1000, device="cuda"), torch.zeros(n * 1000, device="cuda")
    side = torch.cuda.Stream()
    for sync in (True, False):
        def calls():
            work = dist.all_reduce(data, async_op=not sync)
            if work is not None:
                work.wait()
            work = dist.all_gather_into_tensor(out, data * 2, async_op=not sync)
            torch.full((1000,), -7.0, device="cuda")  # takes the memory of the input, if it is free
            if work is not None:
                work.wait()

        with torch.cuda.stream(side):
            calls()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            calls()
        dist.barrier()
        for step in range(3):
            data.fill_(me + step)
            graph.replay()
            torch.cuda.synchronize()
            expected = n * (n - 1) / 2 + n * step
            assert (data == expected).all() and (out == 2 * expected).all(), (sync, step)
        del graph
    torch.cuda.synchronize()


def coalescing(n, me):
    total = n * (n - 1) / 2
    world, device = dist.group.WORLD, torch.device("cuda", torch.cuda.current_device())
    data = [torch.full((1000 + i,), float(me), device="cuda") for i in range(5)]
    with dist._coalescing_manager(world, async_ops=True) as manager:
        for tensor in data:
            dist.all_reduce(tensor)
    manager.wait()
    assert all((t == total).all() for t in data)
    outs = [torch.empty(n * 3, device="cuda"), torch.empty(n, device="cuda")]
    with dist._coalescing_manager(world, device, async_ops=True) as manager:
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, torch.full((3 - 2 * i,), float(me), device="cuda"))
    manager.wait()
    same(outs[0], torch.arange(float(n), device="cuda").repeat_interleave(3), "coalesced all_gather")
    part = torch.empty(4, device="cuda")
    with dist._coalescing_manager(world, device, async_ops=True) as manager:
        dist.reduce_scatter_tensor(part, torch.full((4 * n,), 2.0, device="cuda"))
    manager.wait()
    assert (part == 2 * n).all()


def groups(n, me):
    world, device = dist.group.WORLD, torch.device("cuda", torch.cuda.current_device())
    alone = dist.new_group([me], use_local_synchronization=True)
    data = torch.full((3,), 4.0, device="cuda")
    dist.all_reduce(data, group=alone)
    assert (data == 4).all()
    again = dist.new_group(list(range(n)))
    dist.all_reduce(data, group=again)
    assert (data == 4 * n).all()
    dist.destroy_process_group(again)
    part = dist.split_group(world, [[r] for r in range(n)])
    assert part.size() == 1
    dist.all_reduce(data, group=part)
    whole = dist.split_group(world, [list(range(n))])
    data = torch.full((3,), float(me), device="cuda")
    dist.all_reduce(data, group=whole)
    assert (data == n * (n - 1) / 2).all()
    raises(ccl.InvalidArgumentError,
           lambda: world.alltoall([torch.ones(1, device="cuda")] * n, [torch.ones(1)] * n), "one device")
    if torch.cuda.device_count() > 1:
        elsewhere = torch.ones(1, device=f"cuda:{(me + 1) % torch.cuda.device_count()}")
        raises(ccl.InvalidArgumentError, lambda: dist.all_reduce(elsewhere), str(device))
    if torch.cuda.device_count() >= n:  # a group of NCCL beside it
        dist.all_reduce(data, group=dist.new_group(backend="nccl"))
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": me})
    assert objects == [{"rank": r} for r in range(n)]
    dist.barrier()


def barrier(n, me):
    """A barrier waits for the streams of all ranks."""
    data = torch.ones(1, device="cuda")
    dist.all_reduce(data)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    busy()
    event.record()
    dist.barrier()
    assert event.query(), "the barrier did not wait for the stream"


def compiled(n, me):
    import torch.distributed._functional_collectives as collectives

    world = dist.group.WORLD

    @torch.compile(fullgraph=True)
    def step(x):
        y = collectives.all_reduce(x * 2, "sum", world)
        z = collectives.all_gather_tensor(y + 1, 0, world)
        w = collectives.reduce_scatter_tensor(z, "sum", 0, world)
        return w * 3

    for _ in range(3):
        got = step(torch.full((4, 8), float(me), device="cuda"))
        same(got, torch.full((4, 8), 3 * n * (n * (n - 1) + 1.0), device="cuda"), "compiled")


def model(seed=1):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1024), torch.nn.GELU(),
              torch.nn.Linear(1024, 256)]  # fmt: skip
    return torch.nn.Sequential(*layers).cuda()


def losses(wrapped, me, steps=8):
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    torch.manual_seed(100 + me)
    found = []
    for _ in range(steps):
        data = torch.randn(64, 256, device="cuda")
        loss = (wrapped(data) - data.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


def timed(step, steps=30):
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps * 1e3


def train(kind, wrap, n, me):
    """Losses are those of NCCL, bit for bit: two summands have one order."""
    groups = {"ccl_comm": dist.group.WORLD, "nccl": dist.new_group(backend="nccl")}
    found, times = {}, {}
    for name, group in groups.items():
        found[name] = losses(wrap(model(), group, me), me)
    for name, group in list(groups.items()) + list(groups.items()):
        wrapped = wrap(model(), group, me)
        data = torch.randn(64, 256, device="cuda")
        ms = timed(lambda: wrapped(data).square().mean().backward())
        times.setdefault(name, []).append(round(ms, 3))
    if me == 0:
        print(f"{kind}: losses {found['ccl_comm'][0]:.6f} to {found['ccl_comm'][-1]:.6f}, step in ms "
              f"{times}", flush=True)  # fmt: skip
    assert found["ccl_comm"][-1] < found["ccl_comm"][0]
    same(found["ccl_comm"], found["nccl"], f"losses of {kind}")


def ddp(n, me):
    parallel = torch.nn.parallel.DistributedDataParallel
    train("DDP", lambda m, group, me: parallel(m, device_ids=[me], process_group=group), n, me)


def fsdp(n, me):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    def wrap(m, group, me):
        mesh = DeviceMesh.from_group(group, "cuda")
        for layer in m:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(m, mesh=mesh)

    train("FSDP2", wrap, n, me)


def norm(n, me):
    """The fused operator beside separate calls, eager, compiled and in a graph."""
    from ccl.torch import ops

    torch.manual_seed(3)
    for rows in (1, 5, 64, 512):
        shape = (rows, 4096)
        all = [torch.randn(shape, device="cuda").bfloat16() for _ in range(n)]
        residual = torch.randn(shape, device="cuda").bfloat16()
        weight = torch.rand(shape[-1], device="cuda").bfloat16()
        total = sum(x.float() for x in all).bfloat16()
        h = total + residual
        expected = h.float() * torch.rsqrt(h.float().square().mean(-1, keepdim=True) + 1e-6) * weight.float()
        for fuse in (None, True, False):
            out, sums = ops.all_reduce_add_rms_norm(all[me], residual, weight, fuse=fuse)
            same(sums, h, f"residual of {rows} rows")
            torch.testing.assert_close(out.float(), expected, rtol=0.01, atol=1e-3)
    step = torch.compile(lambda x: ops.all_reduce_add_rms_norm(x * 2, residual, weight)[1] - residual)
    torch.testing.assert_close(step(all[me]).float(), 2 * total.float(), rtol=0.05, atol=0.1)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out, sums = ops.all_reduce_add_rms_norm(all[me], residual, weight)
    graph.replay()
    torch.cuda.synchronize()
    same(sums, h, "residual of the graph")
    raises(ccl.InvalidArgumentError,
           lambda: ops.all_reduce_add_rms_norm(all[me], residual[1:], weight), "residual", "(512, 4096)")
    raises(NotImplementedError, lambda: ops.all_reduce_add_rms_norm(all[me].cpu()), "cpu")
    raises(NotImplementedError, lambda: ops.all_reduce_add_rms_norm(all[me].float(), fuse=True), "float")
    norm_times(n, me)


def norm_times(n, me):
    from ccl.torch import ops

    nccl = dist.new_group(backend="nccl")
    weight = torch.ones(7168, device="cuda", dtype=torch.bfloat16)
    for rows in (1, 8, 32, 128, 192, 256, 512):
        data = torch.ones(rows, 7168, device="cuda", dtype=torch.bfloat16)
        residual = torch.ones_like(data)

        def separate(group):
            dist.all_reduce(data, group=group)
            h = data.add(residual)
            return torch.nn.functional.rms_norm(h, (7168,), weight, 1e-6)

        cases = {"by size": lambda: ops.all_reduce_add_rms_norm(data, residual, weight),
                 "fused": lambda: ops.all_reduce_add_rms_norm(data, residual, weight, fuse=True),
                 "separate, ccl_comm": lambda: separate(None), "separate, nccl": lambda: separate(nccl)}  # fmt: skip
        line = []
        for name, case in cases.items():
            line.append(f"{name} {graph_us(case):.2f}")
        if me == 0:
            print(f"all-reduce, residual, RMSNorm of {rows} x 7168 bfloat16 in a graph, us: "
                  f"{', '.join(line)}", flush=True)  # fmt: skip


def graph_us(case, calls=20, replays=20):
    """Time of one call in us, of a graph of calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        case()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(calls):
            case()
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    dist.barrier()
    ends[0].record()
    for _ in range(replays):
        graph.replay()
    ends[1].record()
    torch.cuda.synchronize()
    return ends[0].elapsed_time(ends[1]) / replays / calls * 1e3


def functors(n, me):
    """Functors of the program: sizes on both sides of the limits, in graphs, and their times."""
    clamped = ccl.Functor("Clamped", """
    #include <algorithm>
    struct Clamped {
      template <class T>
      T operator()(T a, T b) const { return std::min<T>(a + b, 100); }
    };""")
    op = ccl.torch.reduce_op(clamped)
    for dtype in (torch.float32, torch.bfloat16, torch.half, torch.int64, torch.float8_e5m2):
        for count in (1, 1000, 100_003, 40_000_001):
            if dtype == torch.float8_e5m2 and count > 200_000:
                continue
            mine = (torch.arange(count, device="cuda") % 50 + me).to(dtype)
            all = [(torch.arange(count, device="cuda") % 50 + r).to(dtype) for r in range(n)]
            total = all[0].float()
            for one in all[1:]:
                total = (total + one.float()).clamp(max=100)
            total = total.to(dtype)
            data = mine.clone()
            dist.all_reduce(data, op)
            same(data.view(torch.uint8), total.view(torch.uint8), f"all_reduce of {count} {dtype}")
            data = mine.clone()
            dist.reduce(data, n - 1, op)
            if me == n - 1:
                same(data.view(torch.uint8), total.view(torch.uint8), f"reduce of {count} {dtype}")
            wide = torch.cat([mine] * n)
            part = torch.empty_like(mine)
            dist.reduce_scatter_tensor(part, wide, op)
            same(part.view(torch.uint8), total.view(torch.uint8), f"reduce_scatter of {count} {dtype}")
    data = torch.full((200_000,), 30.0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        dist.all_reduce(data, op)
    for replay in range(1, 4):
        graph.replay()
        torch.cuda.synchronize()
        same(data, torch.full_like(data, min(30.0 * n**replay, 100)), f"replay {replay}")
    for kib in (1, 16, 64, 256, 1024, 16384, 262144):
        data = torch.ones(kib * 256, device="cuda")
        by_functor = graph_us(lambda: dist.all_reduce(data, op), calls=5)
        by_sum = graph_us(lambda: dist.all_reduce(data), calls=5)
        if me == 0:
            print(f"all_reduce of {kib} KiB float in a graph, us: functor {by_functor:.2f}, sum {by_sum:.2f}",
                  flush=True)  # fmt: skip


def rows(n, me):
    """Rows whose counts only the GPU knows; a graph runs again with other counts."""
    from ccl.torch import ops

    stride, length = 8, 1024

    def row(source, to, i):
        return float(100 * source + 10 * to + i)

    data = torch.zeros(n * stride, length, device="cuda", dtype=torch.bfloat16)
    for to in range(n):
        for i in range(stride):
            data[to * stride + i] = row(me, to, i)
    counts = torch.tensor([me + to + 1 for to in range(n)], device="cuda", dtype=torch.int32)

    def check(arrived, got, add):
        assert got.tolist() == [p + me + 1 + add for p in range(n)], got
        for p in range(n):
            for i in range(got[p]):
                assert (arrived[p * stride + i] == row(p, me, i)).all(), (p, i)

    check(*ops.exchange_rows(data, counts, send_stride=stride, recv_stride=stride), 0)
    listed = torch.arange(n * stride, device="cuda", dtype=torch.int32)
    check(*ops.exchange_rows(data, counts, send_stride=stride, recv_stride=stride, send_rows=listed), 0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        arrived, got = ops.exchange_rows(data, counts, send_stride=stride, recv_stride=stride)
    for add in (1, 2):
        counts += 1
        graph.replay()
        torch.cuda.synchronize()
        check(arrived, got, add)
    raises(ccl.InvalidArgumentError,
           lambda: ops.exchange_rows(data, counts[:1], send_stride=8, recv_stride=8), "send_counts")


def calls(n, me):
    """Calls per second beside NCCL, as a program makes them: the host is the limit."""
    nccl = dist.new_group(backend="nccl")
    comm = ccl.Communicator.from_env(device="local")
    stream = torch.cuda.current_stream()
    for count in (2, 1024, 16384, 262144, 4194304):
        data = torch.ones(count, device="cuda")
        MAX = dist.ReduceOp.MAX
        cases = {
            "ccl_comm": lambda: dist.all_reduce(data, MAX),
            "ccl_comm, async": lambda: dist.all_reduce(data, MAX, async_op=True).wait(),
            "nccl": lambda: dist.all_reduce(data, MAX, nccl),
            "nccl, async": lambda: dist.all_reduce(data, MAX, nccl, async_op=True).wait(),
            "Communicator": lambda: comm.all_reduce(data, "max", out=data, stream=stream),
        }
        found = {name: [] for name in cases}
        for _ in range(3):
            for name, case in cases.items():
                found[name].append(timed(case, 300) * 1e3)
        if me == 0:
            line = ", ".join(f"{name} {sorted(us)[1]:.1f}" for name, us in found.items())
            print(f"all_reduce of {4 * count} bytes, us a call: {line}", flush=True)
    comm.finalize()


def late(n, me):
    """Rank 1 comes late: the others' kernels end, and their next call names it."""
    data = torch.ones(1000, device="cuda")
    dist.all_reduce(data)
    torch.cuda.synchronize()
    store = dist.distributed_c10d._get_default_store()
    if me != 1:
        begin = time.monotonic()
        work = dist.all_reduce(data, async_op=True)
        torch.cuda.synchronize()
        took = time.monotonic() - begin
        assert took < 4 * LATE_S, took
        time.sleep(1)
        error = raises(ccl.TimedOutError, lambda: dist.all_reduce(data), "rank 1")
        assert work.is_completed() and not work.is_success()
        print(f"rank {me}: after {took:.1f} s: {error}"[:600], flush=True)
    store.set(f"here/{me}", "1")
    store.wait([f"here/{r}" for r in range(n)], timedelta(seconds=60))


def late_wait(n, me):
    """`wait` with a timeout blocks, and names the late rank; the call continues."""
    data = torch.full((1000,), me + 1.0, device="cuda")
    dist.all_reduce(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()
    store = dist.distributed_c10d._get_default_store()
    if me == 0:
        work = dist.all_reduce(data, async_op=True)
        raises(ccl.TimedOutError, lambda: work.wait(timedelta(seconds=0.5)), "rank 1", "0.5 s")
        store.set("go", "1")
    else:
        store.wait(["go"], timedelta(seconds=60))
        work = dist.all_reduce(data, async_op=True)
    work.wait(timedelta(seconds=20))
    assert (data == n * (n + 1) / 2).all()


def main():
    os.environ["NCCL_NVLS_ENABLE"] = "0"  # multicast can put the GPUs of a shared host out of service
    rank, gpu = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    alone = sys.argv[1].startswith("communicator")
    limit = LATE_S if sys.argv[1] == "late" else 60
    if not alone:
        dist.init_process_group("ccl_comm", timeout=timedelta(seconds=limit),
                                device_id=torch.device("cuda", gpu))  # fmt: skip
    for case in sys.argv[1:]:
        globals()[case](int(os.environ["WORLD_SIZE"]), rank)
        if case != "late":
            torch.cuda.synchronize()
        print(f"rank {rank}: {case} is right", flush=True)
    if not alone:
        dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(1)  # kernels that wait for the other rank hold no end up
