"""Streams: queues of calls on CPU ranks, and handles of CUDA streams."""

from __future__ import annotations

import contextlib
import math
import threading
from typing import Any, Iterator, NoReturn

from . import _core
from ._errors import Error, InvalidArgumentError, NotSupportedError, TimedOutError

_NO_LIMIT = 1e9  # seconds; a longer limit is none


class Stream:
    """Ordered queue of calls on CPU ranks, with a thread that runs them.

    A collective that is given a stream returns at once. It runs when all calls queued before it
    have run. The stream keeps the arrays of its calls until `synchronize`; they must not be changed
    meanwhile.
    """

    def __init__(self) -> None:
        self._queue = _core.HostStream()
        self._queueing: dict[int, Any] = {}  # of calls that are being queued
        self._keeping = threading.Lock()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Stream belongs to its process and does not pickle; create one there")

    @property
    def _kept(self) -> list[Any]:
        """Arrays of calls. The queue has them, so that they outlive its thread."""
        kept: list[Any] = self._queue.kept
        return kept

    @_kept.setter
    def _kept(self, kept: list[Any]) -> None:
        self._queue.kept = kept

    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks until all queued calls have run, and raises the first failure among them.

        Parameters
        ----------
        timeout : float, optional
            Limit in seconds. Default, 0 or infinity: none.

        Raises
        ------
        TimedOutError
            Calls have not run within `timeout`. They stay queued.
        """
        limit = 0.0 if timeout is None else float(timeout)
        if math.isnan(limit) or limit < 0:
            raise InvalidArgumentError(
                f"timeout is {limit}; give seconds, or None to wait without limit"
            )
        with self._keeping:  # what other threads queue from here on is not waited for
            kept, self._kept = self._kept, []
        try:
            self._queue.synchronize(0.0 if limit > _NO_LIMIT else limit)
        except BaseException as error:
            # The calls stay queued, also if a handler of a signal raises what it likes. An error of
            # a call comes when all have run.
            if not isinstance(error, Error) or isinstance(error, TimedOutError):
                with self._keeping:
                    self._kept = kept + self._kept
            raise

    @contextlib.contextmanager
    def _keeps(self, buffers: tuple[Any, ...]) -> Iterator[None]:
        """Keeps the arrays of the call that the block queues, unless the call is refused.

        It keeps them from the beginning: a handler of a signal may raise as soon as the call is queued.
        """
        with self._keeping:
            self._queueing[id(buffers)] = buffers
        refused = False
        try:
            yield
        except Error:
            refused = True
            raise
        finally:
            with self._keeping:
                if not refused:
                    self._kept.append(buffers)
                del self._queueing[id(buffers)]

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.synchronize()


def record(tensors: list[Any], handle: int, device: int) -> None:
    """Tells PyTorch's allocator that the stream uses the tensors."""
    import torch

    cuda: Any = torch.cuda
    stream = cuda.current_stream(device)
    if stream.cuda_stream != handle:
        stream = cuda.ExternalStream(handle, device=device)
    for tensor in tensors:  # nothing for one that was allocated on this stream
        tensor.record_stream(stream)


def cuda_stream(stream: Any) -> int:
    """Returns the handle of a CUDA stream: an integer, or an object of a framework."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for attribute in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, Numba
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    raise NotSupportedError(
        f"a {type(stream).__name__} is no CUDA stream (it has no __cuda_stream__, cuda_stream or "
        "ptr); pass its handle as an integer"
    )
