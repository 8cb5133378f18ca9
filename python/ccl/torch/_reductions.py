"""Reductions of torch.distributed, on the engine of the tensors' device."""

from __future__ import annotations

from typing import Any, Callable

import torch

from ._checks import check_count, check_type, flat, joined, one_of, op_of, root_of
from ._tensors import BITWISE, Reduction, check_bitwise, check_sizes, dense, extent, operation, simple


class Reductions:
    """Reductions of a process group."""

    rank_: int
    size_: int
    _on: Callable[..., Any]  # engine of the tensors' device

    def _combine(self, on: Any, kind: str, send: Any, recv: Any, op: Any, root: int = 0) -> None:
        """Runs `kind` of the engine. `recv` is None where nothing is received."""
        name, factor = operation(op)
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

    def allreduce(self, tensors: list, opts: Any = None) -> Any:
        tensor = dense(one_of(tensors, "all_reduce"), "the tensor of all_reduce")
        on = self._on(tensor)
        op = op_of(opts)
        return on.submit(
            "all_reduce", lambda: self._combine(on, "all_reduce", tensor, tensor, op), [tensor], opts
        )

    def allreduce_coalesced(self, tensors: list, opts: Any = None) -> Any:
        op, given = op_of(opts), [dense(t, "a tensor of all_reduce_coalesced") for t in tensors]
        on = self._on(*given)

        def run() -> None:
            with on.group(simple(op)):
                for tensor in given:
                    self._combine(on, "all_reduce", tensor, tensor, op)

        return on.submit("all_reduce_coalesced", run, given, opts)

    def reduce(self, tensors: list, opts: Any = None) -> Any:
        tensor, root = dense(one_of(tensors, "reduce"), "the tensor of reduce"), root_of(opts)
        out = tensor if root == self.rank_ else None
        op = op_of(opts)
        on = self._on(tensor)
        return on.submit(
            "reduce", lambda: self._combine(on, "reduce", tensor, out, op, root), [tensor], opts
        )

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        dense(output, "the output of reduce_scatter")
        dense(input, "the input of reduce_scatter")
        check_sizes(input.numel(), self.size_ * output.numel(), "the input of reduce_scatter")
        check_type(output, input, "reduce_scatter")
        on = self._on(output, input)
        op = op_of(opts)
        return on.submit(
            "reduce_scatter", lambda: self._combine(on, "reduce_scatter", input, output, op), [output], opts
        )

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs: list, inputs: list, opts: Any = None) -> Any:
        for out, given in zip(outputs, inputs):
            dense(out, "an output of reduce_scatter")
            dense(given, "an input of reduce_scatter")
            check_sizes(given.numel(), self.size_ * out.numel(), "an input of reduce_scatter")
            check_type(out, given, "reduce_scatter")
        pairs, op = list(zip(outputs, inputs)), op_of(opts)
        on = self._on(*outputs, *inputs)

        def run() -> None:
            with on.group(simple(op)):
                for out, given in pairs:
                    self._combine(on, "reduce_scatter", given, out, op)

        return on.submit("reduce_scatter_coalesced", run, list(outputs), opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def reduce_scatter(self, outputs: list, inputs: list, opts: Any = None) -> Any:
        output, parts = one_of(outputs, "reduce_scatter"), one_of(inputs, "reduce_scatter")
        check_count(parts, self.size_, "reduce_scatter")
        dense(output, "the output of reduce_scatter")
        check_sizes(parts[self.rank_].numel(), output.numel(), f"part {self.rank_} of reduce_scatter")
        for part in parts:
            check_type(output, part, "reduce_scatter")
        on, op = self._on(output, *parts), op_of(opts)

        def run() -> None:
            if all(part.numel() == output.numel() for part in parts):
                self._combine(on, "reduce_scatter", joined(parts), flat(output), op)
                return
            for root, part in enumerate(parts):  # sizes that differ
                mine = output if root == self.rank_ else None
                self._combine(on, "reduce", part.contiguous(), mine, op, root)

        return on.submit("reduce_scatter", run, [output], opts)
