"""Reductions of torch.distributed, on the engine of the tensors' device."""

from __future__ import annotations

from typing import Any, Callable

import torch

from ._checks import (
    check_count, check_pairs, check_type, in_order, joined, one_of, op_of, root_of, write_back,
)  # fmt: skip
from ._functors import combine, functor_of
from ._tensors import (
    BITWISE, Reduction, check_bitwise, check_sizes, dense, extent, operation, simple, whole,
)  # fmt: skip


class Reductions:
    """Reductions of a process group."""

    rank_: int
    size_: int
    _on: Callable[..., Any]  # engine of the tensors' device

    def _combine(self, on: Any, kind: str, send: Any, recv: Any, op: Any, root: int = 0) -> None:
        """Runs `kind` of the engine. `recv` is None where nothing is received."""
        name, factor = operation(op)
        functor = functor_of(factor)
        if functor is not None:
            return combine(on, kind, send, recv, functor, self.size_, root)
        if factor is not None:
            send, name = (send * factor).to(send.dtype), "SUM"
        if name in BITWISE and send.dtype != torch.bool:
            return self._combine_bits(on, kind, send, recv, name, root)
        how = Reduction(name, send.dtype, kind)
        count = send.numel() * how.width // (self.size_ if kind == "reduce_scatter" else 1)
        to = recv.data_ptr() if recv is not None else 0
        getattr(on.core, kind)(send.data_ptr(), to, count, how.number, how.name, root, on.stream)
        if how.odd and recv is not None:
            recv.view(torch.uint8).bitwise_and_(1)

    def _combine_bits(self, on: Any, kind: str, send: Any, recv: Any, name: str, root: int) -> None:
        """The engine moves the operands; each rank combines those of its result."""
        check_bitwise(name, send.dtype, kind)
        n = self.size_
        count, number = extent(send)
        flat = send.as_strided((send.numel(),), (1,))
        if kind == "reduce_scatter":
            all = torch.empty_like(flat)
            on.core.all_to_all(send.data_ptr(), all.data_ptr(), count // n, number, 0, on.stream)
        else:
            all = flat.new_empty(n * flat.numel())
            on.core.all_gather(send.data_ptr(), all.data_ptr(), count, number, 0, on.stream)
        if recv is not None:
            parts = all.view(n, -1)
            out = parts[0].clone()
            for part in parts[1:]:
                BITWISE[name](out, part, out=out)
            recv.as_strided((recv.numel(),), (1,)).copy_(out)

    def allreduce(self, tensors: list[Any], opts: Any = None) -> Any:
        tensor = dense(one_of(tensors, "all_reduce"), "the tensor of all_reduce")
        on = self._on(tensor)
        op = op_of(opts)
        how = whole(op, "all_reduce", tensor) if on.queues else None
        if how is not None:
            return on.launch("all_reduce", tensor, tensor, tensor.numel() * how.width, how.number, how.name, 0,
                             [tensor], opts)  # fmt: skip

        def run() -> None:
            data = in_order(tensor)
            self._combine(on, "all_reduce", data, data, op)
            write_back(tensor, data)

        return on.submit("all_reduce", run, [tensor], opts)

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Any:
        op, given = op_of(opts), [dense(t, "a tensor of all_reduce_coalesced") for t in tensors]
        check_pairs(given, given, "all_reduce_coalesced")
        on = self._on(*given)

        def run() -> None:
            all = [in_order(tensor) for tensor in given]
            with on.group(simple(op)):
                for data in all:
                    self._combine(on, "all_reduce", data, data, op)
            for tensor, data in zip(given, all):
                write_back(tensor, data)

        return on.submit("all_reduce_coalesced", run, given, opts)

    def reduce(self, tensors: list[Any], opts: Any = None) -> Any:
        tensor, root = dense(one_of(tensors, "reduce"), "the tensor of reduce"), root_of(opts)
        op = op_of(opts)
        on = self._on(tensor)

        def run() -> None:
            data = in_order(tensor)
            self._combine(on, "reduce", data, data if root == self.rank_ else None, op, root)
            if root == self.rank_:
                write_back(tensor, data)

        return on.submit("reduce", run, [tensor], opts)

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        self._check_scattered(output, input)
        on = self._on(output, input)
        op = op_of(opts)
        how = whole(op, "reduce_scatter", input, output) if on.queues else None
        if how is not None:
            return on.launch("reduce_scatter", input, output, output.numel() * how.width, how.number, how.name,
                             0, [output], opts)  # fmt: skip

        def run() -> None:
            out = in_order(output, read=False)
            self._combine(on, "reduce_scatter", in_order(input), out, op)
            write_back(output, out)

        return on.submit("reduce_scatter", run, [output], opts)

    reduce_scatter_single = _reduce_scatter_base

    def _check_scattered(self, output: Any, input: Any) -> None:
        dense(output, "the output of reduce_scatter")
        dense(input, "the input of reduce_scatter")
        check_sizes(input.numel(), self.size_ * output.numel(), "the input of reduce_scatter")
        check_type(output, input, "reduce_scatter")

    def reduce_scatter_tensor_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        check_pairs(outputs, inputs, "reduce_scatter_coalesced")
        for out, given in zip(outputs, inputs):
            self._check_scattered(out, given)
        op = op_of(opts)
        on = self._on(*outputs, *inputs)

        def run() -> None:
            pairs = [(in_order(out, read=False), in_order(given)) for out, given in zip(outputs, inputs)]
            with on.group(simple(op)):
                for out, given in pairs:
                    self._combine(on, "reduce_scatter", given, out, op)
            for output, (out, _) in zip(outputs, pairs):
                write_back(output, out)

        return on.submit("reduce_scatter_coalesced", run, list(outputs), opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def reduce_scatter(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        output, parts = one_of(outputs, "reduce_scatter"), one_of(inputs, "reduce_scatter")
        check_count(parts, self.size_, "reduce_scatter")
        dense(output, "the output of reduce_scatter")
        check_sizes(parts[self.rank_].numel(), output.numel(), f"part {self.rank_} of reduce_scatter")
        for part in parts:
            check_type(output, part, "reduce_scatter")
        on, op = self._on(output, *parts), op_of(opts)

        def run() -> None:
            out = in_order(output, read=False)
            if all(part.numel() == output.numel() for part in parts):
                self._combine(on, "reduce_scatter", joined(parts), out, op)
            else:  # sizes that differ
                for root, part in enumerate(parts):
                    mine = out if root == self.rank_ else None
                    self._combine(on, "reduce", part.resolve_neg().contiguous(), mine, op, root)
            write_back(output, out)

        return on.submit("reduce_scatter", run, [output], opts)
