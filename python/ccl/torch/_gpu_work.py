"""Calls on CUDA streams: work objects, and the engine that queues them."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections import deque
from datetime import timedelta
from typing import Any, Callable

import torch
from torch._C._distributed_c10d import Work as _Work

from .._communicator import Communicator
from .._errors import AbortedError, Error
from . import _devices
from ._checks import blocks, seconds
from ._tensors import extent
from ._work import timed_out

_LOOK_S = 0.02  # between looks at calls that have not ended; messages wait as long for others
_POLL_S = 0.0002
_END_S = 5.0  # limit on the end of an engine's thread, which waits for nothing

_live: weakref.WeakSet[GpuEngine] = weakref.WeakSet()


class GpuWork(_Work):
    """One call on a CUDA stream.

    `wait` makes the current stream wait for the call, and returns at once. With a timeout it blocks
    until the call has ended.
    """

    def __init__(self, name: str, engine: GpuEngine, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._name, self._engine, self._tensors = name, engine, tensors
        self._stream: Any = None  # None: the caller's current stream
        self._event: Any = None
        self._kept: Any = None  # what the call reads and writes, until it has ended
        self._begun = time.monotonic()
        self._limit: float | None = None
        self._error: BaseException | None = None
        self._waits = False  # a message that waits for others of its batch

    def _ended(self) -> bool:
        if self._waits:
            self._engine.send_batch()
        return self._event is None or self._event.query()

    def wait(self, timeout: timedelta | None = None) -> bool:
        if self._waits:
            self._engine.send_batch()
        if self._error is not None:
            raise self._error
        limit = timeout.total_seconds() if timeout else 0.0
        if limit > 0:
            self._block(limit)
        elif self._event is not None:
            _devices.streams.current_stream(self._engine.device).wait_event(self._event)
        return True

    def _block(self, limit: float) -> None:
        end = time.monotonic() + limit
        while not self._ended():
            self._engine.look()
            if self._error is not None:
                raise self._error
            if time.monotonic() > end:
                raise self._engine.expired(self._name, limit, ends=False)
            time.sleep(_POLL_S)

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._error is not None or self._ended()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        if self._error is None and self._event is not None:
            self._engine.look()  # a kernel ends as well if the communicator fails
        return self._error

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._tensors

    def source_rank(self) -> int:
        return -1

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future:
        """Returns a future that is complete on the call's stream: its value waits as `wait` does."""
        if self._waits:
            self._engine.send_batch()
        future = _devices.future(self._engine.device)
        if self._error is not None:
            future.set_exception(self._error)
        elif self._stream is None:
            future.set_result(self._tensors)
        else:
            with _devices.streams.stream(self._stream):
                future.set_result(self._tensors)
        return future


class GpuEngine:
    """Communicator of GPUs, its stream, and its calls that have not ended.

    A call with ``async_op=True`` runs on the engine's stream, which waits for the caller's current
    one. Others run on the current stream itself.
    """

    def __init__(self, comm: Communicator, device: torch.device, name: str) -> None:
        self.comm, self.core, self.device, self.rank = comm, comm._core, device, comm.rank
        self.stream: Any = 0  # handle of the stream of the call that is being queued
        self.bracket: list[GpuWork] | None = None
        self._side = _devices.streams.Stream(device)
        self._name = name
        self._queueing = threading.RLock()
        self._batch: list[tuple[bool, torch.Tensor, int, GpuWork, Any]] = []
        self._captured = False  # the batch belongs to a graph
        self._last: Any = None  # event of the last collective on the engine's stream
        self._changed = threading.Condition(threading.RLock())
        self._pending: deque[GpuWork] = deque()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._lost: list[GpuWork] = []  # their kernels may still use the tensors
        self._closed: str | None = None
        _live.add(self)

    # Calls.

    def submit(
        self, what: str, run: Callable[[], Any], tensors: list[torch.Tensor], options: Any
    ) -> GpuWork:
        self._check(what)
        current = _devices.streams.current_stream(self.device)
        work = GpuWork(what, self, tensors)
        with self._queueing, torch.no_grad():
            if self._batch:
                self.send_batch()
            if blocks(options) and self.bracket is None:
                self.stream = current.cuda_stream
                run()
                return work
            self._side.wait_stream(current)
            with _devices.streams.stream(self._side):
                self.stream = self._side.cuda_stream
                run()
            work._limit = seconds(options)
            self._begun([work], (run, tensors))
            self._last = work._event
            if self.bracket is not None:
                self.bracket.append(work)
        return work

    def on_current(self, what: str, run: Callable[[], Any]) -> None:
        """Runs a call on the current stream."""
        self._check(what)
        with self._queueing:
            if self._batch:
                self.send_batch()
            self.stream = _devices.streams.current_stream(self.device).cuda_stream
            run()

    def message(self, what: str, sends: bool, tensor: torch.Tensor, peer: int) -> GpuWork:
        """Queues a message. It runs with those that come after it, when one of them is waited for.

        So a send and a receive of two ranks that both send first run at the same time.
        """
        self._check(what)
        streams = _devices.streams
        work = GpuWork(what, self, [tensor])
        ready = streams.Event()
        ready.record(streams.current_stream(self.device))
        with self._queueing:
            work._waits = True
            self._captured = streams.is_current_stream_capturing()
            self._batch.append((sends, tensor, peer, work, ready))
            if self.bracket is not None:
                self.bracket.append(work)
        if not self._captured:
            with self._changed:
                self._start()
                self._changed.notify()
        return work

    def send_batch(self) -> None:
        """Runs the messages that wait."""
        with self._queueing:
            batch, self._batch = self._batch, []
            if not batch:
                return
            works = [work for _, _, _, work, _ in batch]
            for work in works:
                work._waits = False
            try:
                for *_, ready in batch:
                    self._side.wait_event(ready)
                self.core.messages(
                    [(sends, tensor.data_ptr(), *extent(tensor), peer)
                     for sends, tensor, peer, _, _ in batch],
                    self._side.cuda_stream,
                )  # fmt: skip
            except Error as error:
                for work in works:
                    work._error = error
                return
            self._begun(works, batch)

    def _begun(self, works: list[GpuWork], uses: Any) -> None:
        """Records the end of calls on the engine's stream, and keeps what they use until then."""
        event = _devices.streams.Event()
        event.record(self._side)
        for work in works:
            work._event, work._stream = event, self._side
        if _devices.streams.is_current_stream_capturing():
            return
        works[0]._kept = uses
        with self._changed:
            self._drop_ended()
            self._pending.extend(works)
            self._start()
            self._changed.notify()

    def _check(self, what: str) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed is not None:
            raise AbortedError(f"{what} ({self._closed})", rank=self.rank)

    def group(self, simple: bool = True) -> Any:
        """Runs the calls of the block together, at its end, if they do nothing else."""
        return self.core.group() if simple else contextlib.nullcontext()

    def marks(self) -> list[Any]:
        """Returns events behind the current stream's work and behind the last collective."""
        mark = _devices.streams.Event()
        mark.record(_devices.streams.current_stream(self.device))
        return [mark] if self._last is None else [mark, self._last]

    def wait_for(self, marks: list[Any]) -> None:
        """Blocks until the events have been reached, or the communicator has failed."""
        for mark in marks:
            while not mark.query():
                self.look()
                if self._failure is not None:
                    raise self._failure
                time.sleep(_POLL_S)

    # Ends of calls.

    def _drop_ended(self) -> None:
        """Lets go of calls that have ended. A kernel ends as well if the communicator has failed."""
        ended = []
        while self._pending and self._pending[0]._ended():
            ended.append(self._pending.popleft())
        if not ended:
            return
        try:
            self.core.status()
        except Error as error:
            self._pending.extendleft(reversed(ended))
            self.fail(error)
            return
        for work in ended:
            work._kept = None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name=self._name, daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        """Runs messages that nobody waits for, lets go of tensors, and finds failures."""
        _devices.allow_other_captures()
        while self._closed is None and self._failure is None:
            with self._changed:
                while not self._pending and not self._batch and self._closed is None:
                    self._changed.wait()
            first = self._batch[:1]
            time.sleep(_LOOK_S)
            if first and self._batch[:1] == first and not self._captured:
                self.send_batch()
            self.look()

    def look(self) -> None:
        """Lets go of calls that have ended. Fails the others if the communicator has failed."""
        with self._changed:
            if self._failure is None:
                self._drop_ended()
            oldest = self._pending[0] if self._pending else None
        if oldest is None or self._failure is not None:
            return
        try:
            self.core.status()
        except Error as error:
            self.fail(error)
            return
        if oldest._limit is not None and time.monotonic() - oldest._begun > oldest._limit:
            self.fail(self.expired(oldest._name, oldest._limit, ends=True))

    def fail(self, error: BaseException) -> None:
        """Fails all calls that have not ended, and those to come."""
        with self._changed:
            self._failure = self._failure or error
            self._lost.extend(self._pending)
            self._pending.clear()
            self._changed.notify_all()
        for work in self._lost:
            work._error = work._error or self._failure

    def expired(self, what: str, limit: float, ends: bool) -> Exception:
        """Returns the error of a call that has not ended after `limit` seconds."""
        text = f"{what} of rank {self.rank} has not ended after {limit:g} s"
        error = timed_out(f"{text}; {self.comm.report()}", self.rank)
        if ends:
            self.comm.abort(text)
        return error

    # The end.

    def drain(self, limit: float) -> bool:
        """Blocks until all calls have ended. Returns False after `limit` seconds."""
        self.send_batch()
        end = time.monotonic() + limit
        while self._failure is None and self._pending and time.monotonic() < end:
            self.look()
            time.sleep(_POLL_S)
        return self._failure is None and not self._pending

    def close(self, why: str, *, together: bool) -> None:
        """Ends the communicator. `together`: with the other ranks; else it waits for none."""
        if self._closed is not None:
            return
        self._closed = why
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_S)
        try:
            if together:
                self.comm.finalize()
            else:
                self.comm.abort(why)
        except Error:
            pass  # a rank that has failed or ended before
        if self._pending:
            self.fail(AbortedError(f"a call has not ended ({why})", rank=self.rank))


def joined_on_gpu(name: str, engine: GpuEngine, works: list[GpuWork]) -> GpuWork:
    """Returns a work that has ended when all `works` have. They run on one stream."""
    engine.send_batch()
    whole = GpuWork(name, engine, [t for work in works for t in work._tensors])
    if works:
        last = works[-1]
        whole._event, whole._stream, whole._error = last._event, last._stream, last._error
    return whole


@atexit.register
def _end_all() -> None:
    """Ends the threads: one that returns from a call of PyTorch as the interpreter ends aborts it."""
    for engine in list(_live):
        engine.close("the process ends", together=False)
