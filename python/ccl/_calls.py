"""Calls of a communicator: reductions, movements and messages on arrays."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Callable, Sequence

from . import _buffers
from ._buffers import CPU, Buffer
from ._checks import Checks, integers
from ._errors import InvalidArgumentError, InvalidUsageError
from ._functor import Functor
from ._stream import Stream, cuda_stream, record


class Calls(Checks):
    """Calls of a communicator, on its engine."""

    # Reductions.

    def all_reduce(self, data: Any, op: str | Functor = "sum", *, out: Any = None, stream: Any = None) -> Any:
        """Combines the arrays of all ranks element by element; every rank gets the result.

        Parameters
        ----------
        data : array
            Any shape, with the same number of elements on all ranks.
        op : {"sum", "prod", "min", "max", "avg"} or Functor
            Reduction. Integers wrap. Types of 16 and 8 bits are added up in float32. Min and max
            take numbers before NaN. An average of integers truncates.
        out : array, optional
            As many elements as `data`, of the same type. `data` itself: in place. Default: a new
            array of the shape of `data`.
        stream : Stream, int or CUDA stream, optional
            See `Stream` for CPU ranks. On GPUs: the object, or the handle as an integer; the call
            returns when it is queued. Default: CPU ranks block, and GPUs take the legacy default
            stream.

        Returns
        -------
        array
            `out`, or the new array.

        Raises
        ------
        InvalidArgumentError
            An array is not contiguous, is read-only, or has another size or type than it must.
        MismatchError
            With ``check=True``, if ranks gave different arguments.
        TimedOutError, PeerLostError, AbortedError
            The call could not complete. The message names the rank at fault.
        """
        send = self._read(data, "data")
        self._check_op(op, send)
        out, recv = self._result(out, data, send, send.shape)
        self._reduce(self._core.all_reduce, send, recv, send.elements, op, 0, stream)
        return out

    def reduce_scatter(
        self, data: Any, op: str | Functor = "sum", *, out: Any = None, stream: Any = None
    ) -> Any:
        """Combines the arrays of all ranks; rank i gets part i of the result.

        See `all_reduce` for the other parameters, the result and the errors.

        Parameters
        ----------
        data : array
            Its first extent must be a multiple of the number of ranks.
        out : array, optional
            ``1 / ranks`` of the elements. In place: a view of part `rank` of `data`. Default: a new
            array whose first extent is that of `data` divided by the number of ranks.
        """
        send = self._read(data, "data")
        self._check_op(op, send)
        out, recv = self._result(out, data, send, self._part(send, out))
        self._reduce(self._core.reduce_scatter, send, recv, send.elements // self.ranks, op, 0, stream)
        return out

    def reduce(
        self, data: Any, op: str | Functor = "sum", *, root: int = 0, out: Any = None, stream: Any = None
    ) -> Any:
        """Combines the arrays of all ranks; rank `root` gets the result.

        `out` is only used on the root. Returns the result there, and None on other ranks. See
        `all_reduce` for the other parameters and the errors.
        """
        send = self._read(data, "data")
        self._check_op(op, send)
        self._check_rank(root, "root")
        recv = None
        if self.rank == root:
            out, recv = self._result(out, data, send, send.shape)
        self._reduce(self._core.reduce, send, recv, send.elements, op, root, stream)
        return out if self.rank == root else None

    # Movements.

    def all_gather(self, data: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Gives every rank the arrays of all ranks, in the order of the ranks.

        `out` has ``ranks`` times as many elements as `data`; by default it is a new array of the
        shape ``(ranks, *data.shape)``. In place: `data` is a view of row `rank` of `out`. Returns
        `out`.
        """
        send = self._read(data, "data")
        out, recv = self._result(out, data, send, (self.ranks, *send.shape))
        self._move(self._core.all_gather, send, recv, send.elements, 0, stream)
        return out

    def broadcast(self, data: Any, *, root: int = 0, stream: Any = None) -> Any:
        """Writes the root's `data` into `data` of every rank. Returns `data`."""
        self._check_rank(root, "root")
        mine = self._read(data, "data")
        if self.rank != root:
            mine = self._write(data, "data")
        self._move(self._core.broadcast, mine, mine, mine.elements, root, stream)
        return data

    def gather(self, data: Any, *, root: int = 0, out: Any = None, stream: Any = None) -> Any:
        """Gives the root the arrays of all ranks, in the order of the ranks.

        `out` is only used on the root; by default it is a new array of the shape
        ``(ranks, *data.shape)``. Returns it there, and None on other ranks.
        """
        send = self._read(data, "data")
        self._check_rank(root, "root")
        recv = None
        if self.rank == root:
            out, recv = self._result(out, data, send, (self.ranks, *send.shape))
        self._move(self._core.gather, send, recv, send.elements, root, stream)
        return out if self.rank == root else None

    def scatter(
        self, data: Any = None, *, root: int = 0, out: Any = None, stream: Any = None
    ) -> Any:
        """Gives rank i part i of the root's array.

        Parameters
        ----------
        data : array
            Only read on the root. Its first extent must be a multiple of the number of ranks.
        out : array
            This rank's part. Needed except on the root, where it is a new array by default.
        """
        self._check_rank(root, "root")
        send = None
        if self.rank == root:
            if data is None:
                raise InvalidArgumentError(f"scatter needs data on its root, rank {root}")
            send = self._read(data, "data")
            out, recv = self._result(out, data, send, self._part(send, out))
        elif out is None:
            raise InvalidArgumentError(
                f"scatter needs out= on rank {self.rank}, which only receives (the root is rank "
                f"{root})"
            )
        else:
            recv = self._write(out, "out")
        self._move(self._core.scatter, send, recv, recv.elements, root, stream)
        return out

    def all_to_all(self, data: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Sends part i of `data` to rank i. Part i of the result comes from rank i.

        The first extent of `data` must be a multiple of the number of ranks. `out` has the same
        number of elements, and may not be `data`. Returns `out`.
        """
        send = self._read(data, "data")
        count = math.prod(self._part(send, out))
        out, recv = self._result(out, data, send, send.shape)
        self._move(self._core.all_to_all, send, recv, count, 0, stream)
        return out

    def all_to_all_v(
        self,
        data: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        send_offsets: Sequence[int] | None = None,
        recv_offsets: Sequence[int] | None = None,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Sends ``send_counts[i]`` elements to rank i, and receives ``recv_counts[i]`` from it.

        Parameters
        ----------
        send_counts, recv_counts : sequence of int
            Numbers of elements, one for each rank. What rank i sends to rank j must be what rank j
            receives from rank i.
        send_offsets, recv_offsets : sequence of int, optional
            Offsets in elements. Default: one part behind the other.
        out : array, optional
            Default: a new array of one dimension that holds all parts.
        """
        send = self._read(data, "data")
        names = ("send_counts", "recv_counts", "send_offsets", "recv_offsets")
        counts = [integers(c, name) for c, name in zip((send_counts, recv_counts), names)]
        offsets = [
            offsets_of(c) if given is None else integers(given, name)
            for c, given, name in zip(counts, (send_offsets, recv_offsets), names[2:])
        ]
        for name, values in zip(names, counts + offsets):
            self._check_counts(name, values)
        needed = [max(map(sum, zip(o, c))) for o, c in zip(offsets, counts)]
        if send.elements < needed[0]:
            raise InvalidArgumentError(
                f"data has {send.elements} elements, and send_counts and send_offsets reach to "
                f"{needed[0]}"
            )
        if out is None:
            out = _buffers.empty(data, send, (needed[1],), "out")
        recv = self._write(out, "out")
        self._check_type(send, recv, "out")
        if recv.elements < needed[1]:
            raise InvalidArgumentError(
                f"out has {recv.elements} elements, and recv_counts and recv_offsets reach to "
                f"{needed[1]}"
            )
        handle = self._stream(stream, send, recv)
        with self._kept(stream, send, recv):
            self._core.all_to_all_v(
                send.address, counts[0], offsets[0], recv.address, counts[1], offsets[1], send.type, handle
            )
        return out

    # Messages between two ranks.

    def send(self, data: Any, to: int, *, stream: Any = None) -> None:
        """Sends `data` to rank `to`, which must receive as many elements.

        A send waits for its receiver. Two ranks that send to each other must use `send_recv`.
        """
        self.exchange([("send", data, to)], stream=stream)

    def recv(self, out: Any, source: int, *, stream: Any = None) -> Any:
        """Receives into `out` from rank `source`. Returns `out`."""
        self.exchange([("recv", out, source)], stream=stream)
        return out

    def send_recv(self, data: Any, to: int, out: Any, source: int, *, stream: Any = None) -> Any:
        """Sends `data` to rank `to` and receives into `out` from rank `source`. Returns `out`."""
        self.exchange([("send", data, to), ("recv", out, source)], stream=stream)
        return out

    def exchange(self, messages: Sequence[tuple[str, Any, int]], *, stream: Any = None) -> None:
        """Runs any number of messages at once.

        Parameters
        ----------
        messages : sequence of (kind, array, peer)
            `kind` is ``"send"`` or ``"recv"``. Messages between the same two ranks match in order.
            Each may have its own type.
        """
        given, buffers = [], []
        for message in messages:
            if not isinstance(message, (tuple, list)) or len(message) != 3:
                raise InvalidArgumentError(f"a message is (kind, array, peer), and not {message!r}")
            kind, array, peer = message
            if kind not in ("send", "recv"):
                raise InvalidArgumentError(f'there is no message "{kind}"; take "send" or "recv"')
            sends = kind == "send"
            buffer = self._read(array, kind) if sends else self._write(array, kind)
            self._check_rank(peer, "to" if sends else "source")
            buffers.append(buffer)
            given.append((sends, buffer.address, buffer.elements, buffer.type, peer))
        handle = self._stream(stream, *buffers)
        with self._kept(stream, *buffers):
            self._core.messages(given, handle)

    # Runs of the engine.

    def _reduce(
        self, run: Callable[..., None], send: Buffer, recv: Buffer | None, count: int, op: str | Functor,
        root: int, stream: Any,
    ) -> None:  # fmt: skip
        at = recv.address if recv is not None else 0
        handle = self._stream(stream, send, recv)
        if isinstance(op, Functor):
            compiled = op._address(send.type) if self._device == CPU else op
            with self._kept(stream, send, recv):
                run(send.address, at, count, send.type, op.name, root, handle, compiled)
        else:
            with self._kept(stream, send, recv):
                run(send.address, at, count, send.type, op, root, handle)

    def _move(
        self, run: Callable[..., None], send: Buffer | None, recv: Buffer | None, count: int,
        root: int, stream: Any,
    ) -> None:  # fmt: skip
        some = send if send is not None else recv
        assert some is not None  # a rank sends or receives
        handle = self._stream(stream, send, recv)
        with self._kept(stream, send, recv):
            run(
                send.address if send is not None else 0,
                recv.address if recv is not None else 0,
                count, some.type, root, handle,
            )  # fmt: skip

    def _stream(self, stream: Any, *buffers: Buffer | None) -> Any:
        """Returns what the engine takes for `stream`, which waits for what writes the buffers."""
        if self._device != CPU:
            if isinstance(stream, Stream):
                raise InvalidUsageError("ccl.Stream is for CPU ranks; pass a CUDA stream")
            from ._cuda import wait_for_producer

            handle = cuda_stream(stream)
            for producer in {b.stream for b in buffers if b is not None and b.stream is not None}:
                wait_for_producer(self._device, producer, handle)
            return handle
        if stream is None:
            return None
        if not isinstance(stream, Stream):
            raise InvalidUsageError(
                f"rank {self.rank} is a CPU rank, and a {type(stream).__name__} is no ccl.Stream"
            )
        return stream._queue

    def _kept(self, stream: Any, *buffers: Buffer | None) -> contextlib.AbstractContextManager[None]:
        """Keeps the memory of the call that the block queues until the stream has run it."""
        if isinstance(stream, Stream):
            return stream._keeps(buffers)
        if self._device != CPU:
            tensors = [b.tensor for b in buffers if b is not None and b.tensor is not None]
            if tensors:
                record(tensors, cuda_stream(stream), self._device)
        return _NOTHING


_NOTHING = contextlib.nullcontext()


def offsets_of(counts: list[int]) -> list[int]:
    offsets, at = [], 0
    for count in counts:
        offsets.append(at)
        at += count
    return offsets
