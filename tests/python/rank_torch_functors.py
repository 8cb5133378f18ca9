"""One of the ranks of test_torch.py: functors of the program. The arguments name the cases."""

import tempfile

import torch
import torch.distributed as dist

import ccl
import ccl.torch
import rank_gpu_functors
import rank_torch
from ccl.torch import ops
from rank_torch import GPUS, REDUCED, raises, same

SOURCE = """
struct Clamped {
  template <class T>
  T operator()(T a, T b) const { return a + b < 5 ? a + b : 5; }
};
"""


def functors(n, me):
    clamped = ccl.Functor("Clamped", SOURCE)
    op = ccl.torch.reduce_op(clamped)
    assert GPUS or (torch.bfloat16 in REDUCED and torch.int64 in REDUCED)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        one = torch.arange(1, 8).to(dtype).repeat(n)
        whole = one if n == 1 else (n * one).clamp(max=5)
        part = whole[:7]
        data = one.clone()
        dist.all_reduce(data, op)
        same(data, whole, "all_reduce")
        work = dist.all_reduce(data.copy_(one), op, async_op=True)
        del work  # the call goes on
        dist.barrier()
        same(data, whole, "all_reduce that nobody waits for")
        dist.reduce(data.copy_(one), n - 1, op)
        same(data, whole if me == n - 1 else one, "reduce")
        out = torch.empty_like(part)
        dist.reduce_scatter_tensor(out, one, op)
        same(out, part, "reduce_scatter_tensor")
        dist.reduce_scatter(out.zero_(), list(one.chunk(n)), op)
        same(out, part, "reduce_scatter")
    data = torch.full((2, 3), 2.0).t()
    dist.all_reduce(data, op)
    same(data, torch.full((3, 2), min(2.0 * n, 5.0)), "transposed")
    del op
    operators(n, clamped)
    faults(n, me, clamped)


def operators(n, clamped):
    one = torch.arange(1.0, 2 * n + 1).view(2 * n, 1).repeat(1, 3)
    whole = one if n == 1 else (n * one).clamp(max=5)
    me = dist.get_rank()

    def step(data):
        return ops.all_reduce_by(data, clamped) + 1, ops.reduce_scatter_by(data.t().t(), clamped)

    for run in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        given = one.clone()
        got = run(given)
        same(got[0], whole + 1, "all_reduce_by")
        same(got[1], whole[2 * me : 2 * me + 2], "reduce_scatter_by")
        same(given, one, "the operand")


def faults(n, me, clamped):
    """Each is refused before a rank waits for another, so the group can be used after it."""
    bad, op = ccl.InvalidArgumentError, ccl.torch.reduce_op(clamped)
    raises(bad, lambda: ccl.torch.reduce_op("sum"), "'sum'", "ccl.Functor")
    raises(bad, lambda: ops.reduce_scatter_by(torch.tensor(1.0), clamped), "shape ()", f"rank {me}")
    if n > 1:
        raises(bad, lambda: ops.reduce_scatter_by(torch.ones(n + 1), clamped), f"({n + 1},)", f"{n}")
    raises(bad, lambda: torch.ops.ccl.all_reduce_by(torch.ones(1), "Gone 1", ops._name_of(None)), "Gone 1")
    for dtype in (torch.bool, torch.complex64):
        data = torch.ones(2, dtype=dtype)
        raises(NotImplementedError, lambda: ops.all_reduce_by(data, clamped), str(dtype), "Clamped", f"rank {me}")
    raises(NotImplementedError, lambda: dist.all_reduce(torch.tensor([True]), op), "torch.bool")
    broken = ccl.torch.reduce_op(ccl.Functor("Broken", "struct Broken { nonsense };"))
    raises(ccl.CompileError, lambda: dist.all_reduce(torch.ones(1), broken), "functor Broken", "nonsense")
    data = torch.ones(1)
    dist.all_reduce(data)
    same(data, torch.full((1,), float(n)), "a call after the refusals")


def played(n, me):
    """With played GPUs, on which kernels of the functor combine what the library moves."""
    with tempfile.TemporaryDirectory() as folder:
        driver = rank_gpu_functors.play(folder)
        functors(n, me)
        assert driver.launches and not driver.memory


if __name__ == "__main__":
    rank_torch.main(globals())
