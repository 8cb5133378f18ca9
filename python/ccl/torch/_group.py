"""The process group: torch.distributed's operations on tensors in CPU memory."""

from __future__ import annotations

import atexit
import weakref
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist

from .. import _errors
from .._communicator import Communicator, UniqueId, _offsets
from ._messages import Messages
from ._tensors import (
    BITWISE, Reduction, adjacent, check_bitwise, check_sizes, dense, extent, operation, splits,
)  # fmt: skip
from ._work import Line, Work, joined, timed_out

NAME = "ccl_comm"
_END_S = 10.0  # limit on the wait for other ranks at the end of a group

_live: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()


class ProcessGroup(dist.ProcessGroup):
    """Group of ranks whose tensors are in CPU memory.

    Collectives run in the order of their calls. A call with ``async_op=True`` runs in a thread of
    the group.
    """

    supports_splitting = False
    supports_coalescing = False

    def __init__(self, store: Any, rank: int, ranks: int, timeout: timedelta, label: str = "") -> None:
        super().__init__(rank, ranks)
        self.store, self.rank_, self.size_ = store, rank, ranks
        self._timeout_s = timeout.total_seconds()
        self._label = self._name = label
        self._text = "undefined"
        self._ended: str | None = None
        self._collectives = 0
        self._bracket: list[Work] | None = None
        self._comm = self.communicator(self._id(), rank, ranks, "", self._timeout_s)
        self._core: Any = self._comm._core
        self._line = Line(f"ccl {label}")
        self._messages = Messages(self)
        _live.add(self)

    @classmethod
    def _create(cls, options: Any, given: Any) -> ProcessGroup:
        if given is not None:
            raise _errors.InvalidArgumentError(
                f"{NAME} takes no pg_options (a {type(given).__name__} was given); its settings are "
                "environment variables, CCL_..."
            )
        return cls(options.store, options.group_rank, options.group_size, options.timeout,
                   str(options.group_id))  # fmt: skip

    def _id(self) -> UniqueId:
        if self.rank_ == 0:
            id = UniqueId.create()
            self.store.set("ccl/id", id.bytes)
            return id
        try:
            self.store.wait(["ccl/id"], timedelta(seconds=self._timeout_s))
            return UniqueId(self.store.get("ccl/id"))
        except RuntimeError as error:
            raise timed_out(
                f"rank {self.rank_} waited for rank 0, which has not created group "
                f"{self._label!r} after {self._timeout_s:g} s: {error}", self.rank_, 0
            ) from error  # fmt: skip

    def communicator(
        self, id: UniqueId, rank: int, ranks: int, what: str, timeout_s: float = 0.0
    ) -> Communicator:
        name = f"torch {self._label} {what}".strip()
        return Communicator(id, rank, ranks, name=name, timeout=timeout_s, init_timeout=self._timeout_s)

    # What torch asks about it.

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: Any) -> ProcessGroup:
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"{NAME} has no backend for {device}")
        return self

    get_backend = _get_backend

    def _get_backend_name(self) -> str:
        return NAME

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, text: str) -> None:
        self._text = text

    def getGroupName(self) -> str:
        return self._name

    def getGroupDesc(self) -> str:
        return self._text

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def get_group_store(self) -> Any:
        return self.store

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._collectives

    def set_timeout(self, timeout: timedelta) -> None:
        raise _errors.NotSupportedError(
            f"{NAME} cannot change the timeout of a group; pass timeout= when it is created"
        )

    _set_timeout = set_timeout

    # Running calls.

    def _submit(self, what: str, run: Callable[[], Any], tensors: list, options: Any) -> Work:
        limit = _seconds(options)
        work = Work(what, run, tensors, limit, self._expired)
        self._collectives += 1
        if self._bracket is not None:
            self._bracket.append(work)
        blocking = options is not None and not getattr(options, "asyncOp", True) and limit is None
        self._line.submit(work, inline=blocking and self._bracket is None)
        return work

    def _expired(self, what: str, limit: float, ends: bool) -> Exception:
        """Returns the error of a call that is not done after `limit` seconds."""
        text = f"{what} of rank {self.rank_} is not done after {limit:g} s"
        error = timed_out(f"{text}; {self._comm.report()}", self.rank_)
        if ends:
            self._comm.abort(text)
        return error

    def _start_coalescing(self, device: Any) -> None:
        self._get_backend(device)
        if self._bracket is not None:
            raise _errors.InvalidUsageError("a coalescing region of this group is open already")
        self._bracket = []

    def _end_coalescing(self, device: Any = None) -> Work:
        works, self._bracket = self._bracket or [], None
        return joined("coalesced calls", works)

    start_coalescing, end_coalescing = _start_coalescing, _end_coalescing

    # Reductions.

    def _combine(self, kind: str, send: Any, recv: Any, op: Any, root: int = 0) -> None:
        """Runs `kind` of the engine. `recv` is None where nothing is received."""
        name, factor = operation(op)
        if factor is not None:
            send, name = (send * factor).to(send.dtype), "SUM"
        if name in BITWISE and send.dtype != torch.bool:
            return self._combine_bits(kind, send, recv, name, root)
        how = Reduction(name, send.dtype, kind)
        count = send.numel() * how.width // (self.size_ if kind == "reduce_scatter" else 1)
        to = recv.data_ptr() if recv is not None else 0
        getattr(self._core, kind)(send.data_ptr(), to, count, how.number, how.name, root, None)
        if how.odd and recv is not None:
            recv.view(torch.uint8).bitwise_and_(1)

    def _combine_bits(self, kind: str, send: Any, recv: Any, name: str, root: int) -> None:
        """The engine moves the operands; each rank combines those of its result."""
        check_bitwise(name, send.dtype, kind)
        n = self.size_
        count, number = extent(send)
        flat = send.as_strided((send.numel(),), (1,))
        if kind == "reduce_scatter":
            all = torch.empty_like(flat)
            self._core.all_to_all(send.data_ptr(), all.data_ptr(), count // n, number, 0, None)
        else:
            all = flat.new_empty(n * flat.numel())
            self._core.all_gather(send.data_ptr(), all.data_ptr(), count, number, 0, None)
        if recv is not None:
            parts = all.view(n, -1)
            out = parts[0].clone()
            for part in parts[1:]:
                BITWISE[name](out, part, out=out)
            recv.as_strided((recv.numel(),), (1,)).copy_(out)

    def allreduce(self, tensors: list, opts: Any = None) -> Work:
        tensor = dense(_one(tensors, "all_reduce"), "the tensor of all_reduce")
        op = _op(opts)
        return self._submit(
            "all_reduce", lambda: self._combine("all_reduce", tensor, tensor, op), [tensor], opts
        )

    def allreduce_coalesced(self, tensors: list, opts: Any = None) -> Work:
        op, given = _op(opts), [dense(t, "a tensor of all_reduce_coalesced") for t in tensors]

        def run() -> None:
            for tensor in given:
                self._combine("all_reduce", tensor, tensor, op)

        return self._submit("all_reduce_coalesced", run, given, opts)

    def reduce(self, tensors: list, opts: Any = None) -> Work:
        tensor, root = dense(_one(tensors, "reduce"), "the tensor of reduce"), _root(opts)
        out = tensor if root == self.rank_ else None
        op = _op(opts)
        return self._submit(
            "reduce", lambda: self._combine("reduce", tensor, out, op, root), [tensor], opts
        )

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> Work:
        dense(output, "the output of reduce_scatter")
        dense(input, "the input of reduce_scatter")
        check_sizes(input.numel(), self.size_ * output.numel(), "the input of reduce_scatter")
        _same_type(output, input, "reduce_scatter")
        op = _op(opts)
        return self._submit(
            "reduce_scatter", lambda: self._combine("reduce_scatter", input, output, op), [output], opts
        )

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        for out, given in zip(outputs, inputs):
            dense(out, "an output of reduce_scatter")
            dense(given, "an input of reduce_scatter")
            check_sizes(given.numel(), self.size_ * out.numel(), "an input of reduce_scatter")
            _same_type(out, given, "reduce_scatter")
        pairs, op = list(zip(outputs, inputs)), _op(opts)

        def run() -> None:
            for out, given in pairs:
                self._combine("reduce_scatter", given, out, op)

        return self._submit("reduce_scatter_coalesced", run, list(outputs), opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def reduce_scatter(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        output, parts = _one(outputs, "reduce_scatter"), _one(inputs, "reduce_scatter")
        _count(parts, self.size_, "reduce_scatter")
        dense(output, "the output of reduce_scatter")
        check_sizes(parts[self.rank_].numel(), output.numel(), f"part {self.rank_} of reduce_scatter")
        for part in parts:
            _same_type(output, part, "reduce_scatter")
        op = _op(opts)

        def run() -> None:
            if all(part.numel() == output.numel() for part in parts):
                self._combine("reduce_scatter", _joined(parts), _flat(output), op)
                return
            for root, part in enumerate(parts):  # sizes that differ
                mine = output if root == self.rank_ else None
                self._combine("reduce", part.contiguous(), mine, op, root)

        return self._submit("reduce_scatter", run, [output], opts)

    # Movements.

    def broadcast(self, tensors: list, opts: Any = None) -> Work:
        tensor, root = dense(_one(tensors, "broadcast"), "the tensor of broadcast"), _root(opts)
        count, number = extent(tensor)
        at = tensor.data_ptr()
        return self._submit(
            "broadcast", lambda: self._core.broadcast(at, at, count, number, root, None), [tensor], opts
        )

    def _gather_all(self, output: Any, input: Any) -> None:
        count, number = extent(input)
        self._core.all_gather(input.data_ptr(), output.data_ptr(), count, number, 0, None)

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Work:
        self._check_gathered(output, input)
        return self._submit("all_gather", lambda: self._gather_all(output, input), [output], opts)

    all_gather_single = _allgather_base

    def _check_gathered(self, output: Any, input: Any) -> None:
        dense(output, "the output of all_gather")
        dense(input, "the input of all_gather")
        check_sizes(output.numel(), self.size_ * input.numel(), "the output of all_gather")
        _same_type(output, input, "all_gather")

    def allgather_into_tensor_coalesced(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        pairs = list(zip(outputs, inputs))
        for out, given in pairs:
            self._check_gathered(out, given)

        def run() -> None:
            for out, given in pairs:
                self._gather_all(out, given)

        return self._submit("all_gather_coalesced", run, list(outputs), opts)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        rows, input = _one(outputs, "all_gather"), _one(inputs, "all_gather")
        run = self._list_gather(rows, dense(input, "the input of all_gather"))
        return self._submit("all_gather", run, list(rows), opts)

    def allgather_coalesced(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        # `outputs` has a list of tensors for each rank, as its frontend gives it.
        runs = [
            self._list_gather([row[i] for row in outputs], dense(given, "an input of all_gather"))
            for i, given in enumerate(inputs)
        ]
        tensors = [t for row in outputs for t in row]
        return self._submit("all_gather_coalesced", lambda: [run() for run in runs], tensors, opts)

    def _list_gather(self, rows: list, input: Any) -> Callable[[], None]:
        _count(rows, self.size_, "all_gather")
        check_sizes(rows[self.rank_].numel(), input.numel(), f"output {self.rank_} of all_gather")
        for row in rows:
            _same_type(row, input, "all_gather")

        def run() -> None:
            given = input.contiguous()
            into = _Parts(rows)
            if all(row.numel() == given.numel() for row in rows):
                self._gather_all(into.flat, given)
            else:  # sizes that differ
                count, number = extent(given)
                counts = into.counts()
                self._core.all_to_all_v(given.data_ptr(), [count] * self.size_, [0] * self.size_,
                                        into.flat.data_ptr(), counts, _offsets(counts), number, None)  # fmt: skip
            into.write_back()

        return run

    def gather(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        input, root = dense(_one(inputs, "gather"), "the input of gather"), _root(opts)
        rows: list = []
        if root == self.rank_:
            rows = _one(outputs, "gather")
            _count(rows, self.size_, "gather")
            for row in rows:
                check_sizes(row.numel(), input.numel(), "an output of gather")
                _same_type(row, input, "gather")
        elif outputs:
            raise _errors.InvalidArgumentError(
                f"gather has outputs on rank {self.rank_}, and only its root, rank {root}, receives"
            )

        def run() -> None:
            given, into = input.contiguous(), _Parts(rows) if rows else None
            count, number = extent(given)
            to = into.flat.data_ptr() if into else 0
            self._core.gather(given.data_ptr(), to, count, number, root, None)
            if into:
                into.write_back()

        return self._submit("gather", run, list(rows), opts)

    def gather_single(self, output: Any, input: Any, opts: Any = None) -> Work:
        dense(input, "the input of gather")
        root = _root(opts)
        if root == self.rank_:
            dense(output, "the output of gather")
            check_sizes(output.numel(), self.size_ * input.numel(), "the output of gather")
        to = output.data_ptr() if root == self.rank_ else 0
        count, number = extent(input)
        return self._submit(
            "gather", lambda: self._core.gather(input.data_ptr(), to, count, number, root, None),
            [output] if root == self.rank_ else [], opts,
        )  # fmt: skip

    gather_into_tensor = gather_single

    def scatter(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        output, root = dense(_one(outputs, "scatter"), "the output of scatter"), _root(opts)
        parts: list = []
        if root == self.rank_:
            parts = _one(inputs, "scatter")
            _count(parts, self.size_, "scatter")
            for part in parts:
                check_sizes(part.numel(), output.numel(), "an input of scatter")
                _same_type(output, part, "scatter")
        elif inputs:
            raise _errors.InvalidArgumentError(
                f"scatter has inputs on rank {self.rank_}, and only its root, rank {root}, sends"
            )

        def run() -> None:
            given = _joined(parts) if parts else None
            count, number = extent(output)
            into = _Parts([output])
            self._core.scatter(given.data_ptr() if parts else 0, into.flat.data_ptr(), count, number,
                               root, None)  # fmt: skip
            into.write_back()

        return self._submit("scatter", run, [output], opts)

    def alltoall_base(
        self, output: Any, input: Any, output_splits: list, input_splits: list, opts: Any = None
    ) -> Work:
        for tensor, what in ((output, "output"), (input, "input")):
            if not dense(tensor, f"the {what} of all_to_all").is_contiguous():
                raise _errors.InvalidArgumentError(
                    f"the {what} of all_to_all is not contiguous (strides {tensor.stride()})"
                )
        _same_type(output, input, "all_to_all")
        recv = splits(output, output_splits, self.size_, "the output of all_to_all")
        send = splits(input, input_splits, self.size_, "the input of all_to_all")
        return self._submit(
            "all_to_all", lambda: self._exchange(output, recv, input, send), [output], opts
        )

    all_to_all_single = alltoall_base

    def _exchange(self, output: Any, recv: list[int], input: Any, send: list[int]) -> None:
        count, number = extent(input)
        width = count // input.numel() if input.numel() else 1
        send, recv = [n * width for n in send], [n * width for n in recv]
        self._core.all_to_all_v(input.data_ptr(), send, _offsets(send), output.data_ptr(), recv,
                                _offsets(recv), number, None)  # fmt: skip

    def alltoall(self, outputs: list, inputs: list, opts: Any = None) -> Work:
        _count(outputs, self.size_, "all_to_all")
        _count(inputs, self.size_, "all_to_all")
        for tensor in (*outputs, *inputs):
            _on_cpu(tensor, "all_to_all")
            _same_type(outputs[0], tensor, "all_to_all")

        def run() -> None:
            into = _Parts(outputs)
            sizes = [[t.numel() for t in row] for row in (outputs, inputs)]
            self._exchange(into.flat, sizes[0], _joined(inputs), sizes[1])
            into.write_back()

        return self._submit("all_to_all", run, list(outputs), opts)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        return self._submit("barrier", self._core.barrier, [], opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose error says which ranks are late."""
        work = Work("monitored_barrier", self._core.barrier, [], None, self._expired)
        self._line.submit(work, inline=False)
        work.wait(timeout)

    # Messages.

    def send(self, tensors: list, to: int, tag: int = 0) -> Work:
        tensor = dense(_one(tensors, "send"), "the tensor of send")
        self._check_peer(to, "send to")
        work = self._message(f"send to rank {to} (tag {tag})", tensor, to)
        if self._bracket is not None:
            self._bracket.append(work)
        self._messages.send(work, tensor, to, tag)
        return work

    def recv(self, tensors: list, source: int, tag: int = 0) -> Work:
        self._check_peer(source, "receive from")
        return self._receive(tensors, source, tag, f"recv from rank {source} (tag {tag})")

    def recv_anysource(self, tensors: list, tag: int = 0) -> Work:
        return self._receive(tensors, None, tag, f"recv from any rank (tag {tag})")

    def _receive(self, tensors: list, source: int | None, tag: int, what: str) -> Work:
        tensor = dense(_one(tensors, "recv"), "the tensor of recv")
        work = self._message(what, tensor, -1 if source is None else source)
        work._queued()
        if self._bracket is not None:
            self._bracket.append(work)
        if self._ended is not None:
            work._finish(_errors.AbortedError(f"{what} ({self._ended})", rank=self.rank_))
        else:
            self._messages.inbox.receive(tensor, source, tag, work)
        return work

    def _message(self, what: str, tensor: Any, peer: int) -> Work:
        def expired(name: str, limit: float, ends: bool) -> Exception:
            if ends:
                self._messages.inbox.forget(work)
            other = f"rank {peer} is late" if peer >= 0 else "no rank has sent a message"
            return timed_out(f"{name} of rank {self.rank_} is not done after {limit:g} s ({other})",
                             self.rank_, peer)  # fmt: skip

        work = Work(what, None, [tensor], self._timeout_s or None, expired)
        return work

    def _check_peer(self, peer: int, what: str) -> None:
        if not 0 <= peer < self.size_ or peer == self.rank_:
            raise _errors.InvalidArgumentError(
                f"rank {self.rank_} cannot {what} rank {peer} (the group has ranks 0 to "
                f"{self.size_ - 1}, and a rank sends nothing to itself)"
            )

    # The end.

    def shutdown(self) -> None:
        """Ends the group when its calls are done. Waits for other ranks, but not for long."""
        if self._ended is not None:
            return
        self._ended = "the group has ended"
        clean = self._line.drain(self._timeout_s or _END_S)
        self._messages.end(_END_S)
        last = Work("the end of the group", self._comm.finalize, [], _END_S, self._expired)
        try:
            if clean:
                self._line.submit(last, inline=False)
                last.wait()
        except _errors.Error:
            pass  # a rank that has failed or ended before
        self._line.close(self._ended)

    def abort(self) -> None:
        """Ends all calls on all ranks, which raise `ccl.AbortedError`. Waits for no rank."""
        if self._ended is None:
            self._ended = f"rank {self.rank_} has aborted the group"
        self._comm.abort(self._ended)
        self._messages.abort(self._ended)
        self._line.close(self._ended)


def _seconds(options: Any) -> float | None:
    timeout = getattr(options, "timeout", None)
    if timeout is None or timeout <= timedelta(0):
        return None
    return timeout.total_seconds()


def _op(options: Any) -> Any:
    return dist.ReduceOp.SUM if options is None else options.reduceOp


def _root(options: Any) -> int:
    return 0 if options is None else options.rootRank


def _one(given: list, what: str) -> Any:
    if not isinstance(given, (list, tuple)):
        return given
    if len(given) != 1:
        raise _errors.InvalidArgumentError(f"{what} takes one tensor or list, and has {len(given)}")
    return given[0]


def _count(given: list, ranks: int, what: str) -> None:
    if len(given) != ranks:
        raise _errors.InvalidArgumentError(
            f"{what} has {len(given)} tensors, and there are {ranks} ranks; give one for each rank"
        )


def _on_cpu(tensor: Any, what: str) -> None:
    if tensor.device.type != "cpu":
        dense(tensor, f"a tensor of {what}")


def _same_type(one: Any, other: Any, what: str) -> None:
    if one.dtype != other.dtype:
        raise _errors.InvalidArgumentError(
            f"{what} has tensors of {one.dtype} and {other.dtype}; all must have one type"
        )


def _flat(tensor: Any) -> Any:
    return tensor.as_strided((tensor.numel(),), (1,))


def _joined(parts: list) -> Any:
    """Returns the elements of all tensors in one run of memory."""
    if adjacent(parts):
        return parts[0].as_strided((sum(p.numel() for p in parts),), (1,))
    return torch.cat([part.reshape(-1) for part in parts])


class _Parts:
    """Tensors to be written as one run of memory: themselves, if they are one, or a copy."""

    def __init__(self, tensors: list) -> None:
        self._tensors = tensors
        total = sum(t.numel() for t in tensors)
        self._own = adjacent(tensors)
        first = tensors[0]
        self.flat = first.as_strided((total,), (1,)) if self._own else first.new_empty(total)

    def counts(self) -> list[int]:
        return [extent(t)[0] for t in self._tensors]

    def write_back(self) -> None:
        if self._own:
            return
        at = 0
        with torch.no_grad():
            for tensor in self._tensors:
                tensor.copy_(self.flat[at : at + tensor.numel()].view(tensor.shape))
                at += tensor.numel()


@atexit.register
def _end_all() -> None:
    for group in list(_live):
        group.shutdown()
