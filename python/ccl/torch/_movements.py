"""Movements of torch.distributed, on the engine of the tensors' device."""

from __future__ import annotations

from typing import Any, Callable

from .._calls import offsets_of
from .._errors import InvalidArgumentError
from ._checks import (
    Parts, check_count, check_pairs, check_type, in_order, joined, one_of, root_of, write_back,
)  # fmt: skip
from ._tensors import check_sizes, dense, extent, splits


class Movements:
    """Movements of a process group."""

    rank_: int
    size_: int
    _on: Callable[..., Any]  # engine of the tensors' device

    def broadcast(self, tensors: list[Any], opts: Any = None) -> Any:
        tensor, root = dense(one_of(tensors, "broadcast"), "the tensor of broadcast"), root_of(opts)
        count, number = extent(tensor)
        on, sends = self._on(tensor), root == self.rank_
        if on.queues and tensor.is_contiguous():
            return on.launch("broadcast", tensor, tensor, count, number, "", root, [tensor], opts)

        def run() -> None:
            data = in_order(tensor, read=sends)
            at = data.data_ptr()
            on.core.broadcast(at, at, count, number, root, on.stream)
            if not sends:
                write_back(tensor, data)

        return on.submit("broadcast", run, [tensor], opts)

    def _gather_all(self, on: Any, output: Any, input: Any) -> None:
        """`output` and `input` are contiguous."""
        count, number = extent(input)
        on.core.all_gather(input.data_ptr(), output.data_ptr(), count, number, 0, on.stream)

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        self._check_gathered(output, input)
        on = self._on(output, input)
        if on.queues and output.is_contiguous() and input.is_contiguous():
            count, number = extent(input)
            return on.launch("all_gather", input, output, count, number, "", 0, [output], opts)

        def run() -> None:
            into = in_order(output, read=False)
            self._gather_all(on, into, in_order(input))
            write_back(output, into)

        return on.submit("all_gather", run, [output], opts)

    all_gather_single = _allgather_base

    def _check_gathered(self, output: Any, input: Any) -> None:
        dense(output, "the output of all_gather")
        dense(input, "the input of all_gather")
        check_sizes(output.numel(), self.size_ * input.numel(), "the output of all_gather")
        check_type(output, input, "all_gather")

    def allgather_into_tensor_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        check_pairs(outputs, inputs, "all_gather_coalesced")
        for out, given in zip(outputs, inputs):
            self._check_gathered(out, given)
        on = self._on(*outputs, *inputs)

        def run() -> None:
            pairs = [(in_order(out, read=False), in_order(given)) for out, given in zip(outputs, inputs)]
            with on.group():
                for into, given in pairs:
                    self._gather_all(on, into, given)
            for out, (into, _) in zip(outputs, pairs):
                write_back(out, into)

        return on.submit("all_gather_coalesced", run, list(outputs), opts)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        rows, input = one_of(outputs, "all_gather"), one_of(inputs, "all_gather")
        on = self._on(input, *rows)
        run = self._list_gather(on, rows, dense(input, "the input of all_gather"))
        return on.submit("all_gather", run, list(rows), opts)

    def allgather_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        # `outputs` has a list of tensors for each rank, as its frontend gives it.
        tensors = [t for row in outputs for t in row]
        on = self._on(*tensors, *inputs)
        runs = [
            self._list_gather(on, [row[i] for row in outputs], dense(given, "an input of all_gather"))
            for i, given in enumerate(inputs)
        ]
        return on.submit("all_gather_coalesced", lambda: [run() for run in runs], tensors, opts)

    def _list_gather(self, on: Any, rows: list[Any], input: Any) -> Callable[[], None]:
        check_count(rows, self.size_, "all_gather")
        check_sizes(rows[self.rank_].numel(), input.numel(), f"output {self.rank_} of all_gather")
        for row in rows:
            check_type(row, input, "all_gather")

        def run() -> None:
            given = input.contiguous()
            into = Parts(rows)
            if all(row.numel() == given.numel() for row in rows):
                self._gather_all(on, into.flat, given)
            else:  # sizes that differ
                count, number = extent(given)
                counts = into.counts()
                on.core.all_to_all_v(given.data_ptr(), [count] * self.size_, [0] * self.size_,
                                     into.flat.data_ptr(), counts, offsets_of(counts), number, on.stream)  # fmt: skip
            into.write_back()

        return run

    def gather(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        input, root = dense(one_of(inputs, "gather"), "the input of gather"), root_of(opts)
        rows: list[Any] = []
        if root == self.rank_:
            rows = one_of(outputs, "gather")
            check_count(rows, self.size_, "gather")
            for row in rows:
                check_sizes(row.numel(), input.numel(), "an output of gather")
                check_type(row, input, "gather")
        elif outputs:
            raise InvalidArgumentError(
                f"gather has outputs on rank {self.rank_}, and only its root, rank {root}, receives"
            )
        on = self._on(input, *rows)

        def run() -> None:
            given, into = input.contiguous(), Parts(rows) if rows else None
            count, number = extent(given)
            to = into.flat.data_ptr() if into else 0
            on.core.gather(given.data_ptr(), to, count, number, root, on.stream)
            if into:
                into.write_back()

        return on.submit("gather", run, list(rows), opts)

    def gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        dense(input, "the input of gather")
        root = root_of(opts)
        receives = root == self.rank_
        if receives:
            dense(output, "the output of gather")
            check_sizes(output.numel(), self.size_ * input.numel(), "the output of gather")
            check_type(output, input, "gather")
        count, number = extent(input)
        on = self._on(input, *([output] if receives else []))

        def run() -> None:
            given = in_order(input)
            into = in_order(output, read=False) if receives else None
            to = into.data_ptr() if into is not None else 0
            on.core.gather(given.data_ptr(), to, count, number, root, on.stream)
            if into is not None:
                write_back(output, into)

        return on.submit("gather", run, [output] if receives else [], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        output, root = dense(one_of(outputs, "scatter"), "the output of scatter"), root_of(opts)
        parts: list[Any] = []
        if root == self.rank_:
            parts = one_of(inputs, "scatter")
            check_count(parts, self.size_, "scatter")
            for part in parts:
                check_sizes(part.numel(), output.numel(), "an input of scatter")
                check_type(output, part, "scatter")
        elif inputs:
            raise InvalidArgumentError(
                f"scatter has inputs on rank {self.rank_}, and only its root, rank {root}, sends"
            )
        on = self._on(output, *parts)

        def run() -> None:
            given = joined(parts) if parts else None
            count, number = extent(output)
            into = in_order(output, read=False)
            on.core.scatter(given.data_ptr() if given is not None else 0, into.data_ptr(), count, number, root,
                            on.stream)  # fmt: skip
            write_back(output, into)

        return on.submit("scatter", run, [output], opts)

    def alltoall_base(
        self, output: Any, input: Any, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> Any:
        for tensor, what in ((output, "output"), (input, "input")):
            if not dense(tensor, f"the {what} of all_to_all").is_contiguous():
                raise InvalidArgumentError(
                    f"the {what} of all_to_all is not contiguous (strides {tensor.stride()})"
                )
        check_type(output, input, "all_to_all")
        recv = splits(output, output_splits, self.size_, "the output of all_to_all")
        send = splits(input, input_splits, self.size_, "the input of all_to_all")
        on = self._on(output, input)
        return on.submit(
            "all_to_all", lambda: self._exchange(on, output, recv, input, send), [output], opts
        )

    all_to_all_single = alltoall_base

    def _exchange(
        self, on: Any, output: Any, recv: list[int], input: Any, send: list[int]
    ) -> None:
        count, number = extent(input)
        width = count // input.numel() if input.numel() else 1
        send, recv = [n * width for n in send], [n * width for n in recv]
        on.core.all_to_all_v(input.data_ptr(), send, offsets_of(send), output.data_ptr(), recv,
                             offsets_of(recv), number, on.stream)  # fmt: skip

    def alltoall(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        check_count(outputs, self.size_, "all_to_all")
        check_count(inputs, self.size_, "all_to_all")
        on = self._on(*outputs, *inputs)
        for tensor in (*outputs, *inputs):
            check_type(outputs[0], tensor, "all_to_all")

        def run() -> None:
            into = Parts(outputs)
            sizes = [[t.numel() for t in row] for row in (outputs, inputs)]
            self._exchange(on, into.flat, sizes[0], joined(inputs), sizes[1])
            into.write_back()

        return on.submit("all_to_all", run, list(outputs), opts)
