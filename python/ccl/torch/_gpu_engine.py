"""Engine that queues calls on CUDA streams, and the thread that watches them."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, NamedTuple

import torch

from .._communicator import Communicator
from .._errors import AbortedError, Error, InvalidUsageError
from . import _devices
from ._checks import blocks, in_order, seconds, write_back
from ._ending import END_S, bounded
from ._gpu_work import POLL_S, GpuWork
from ._tensors import extent
from ._work import let_go, report_of, timed_out

_LOOK_S = 0.02  # between looks at calls that have not ended; messages wait as long for others
_THREAD_END_S = 5.0  # limit on the end of an engine's thread, which waits for nothing

_live: weakref.WeakSet[GpuEngine] = weakref.WeakSet()


class _Message(NamedTuple):
    """A message that waits for others of its batch."""

    sends: bool
    data: torch.Tensor  # contiguous: `tensor`, or a copy of it
    tensor: torch.Tensor
    peer: int
    work: GpuWork
    ready: Any  # mark behind the kernels that write `data`


class GpuEngine:
    """Communicator of GPUs, its stream, and its calls that have not ended.

    A call with ``async_op=True`` runs on the engine's stream, which waits for the caller's current
    one. Others run on the current stream itself.
    """

    queues = True

    def __init__(self, comm: Communicator, device: torch.device, name: str) -> None:
        self.comm, self.core, self.device, self.rank = comm, comm._core, device, comm.rank
        self.stream: Any = 0  # handle of the stream of the call that is being queued
        self.bracket: list[GpuWork] | None = None
        self._side = _devices.streams.Stream(device)
        self._order = _devices.SideStream(self._side.cuda_stream)
        self._name = name
        self._queueing = threading.RLock()
        self._batch: list[_Message] = []
        self._captured = False  # the batch belongs to a graph
        self._last: Any = None  # mark of the last collective on the engine's stream
        self._graph_uses: list[tuple[Any, Any]] = []  # mark of a captured call, and what it uses
        self._changed = threading.Condition(threading.RLock())
        self._pending: deque[GpuWork] = deque()
        self._thread: threading.Thread | None = None
        self._idle = False  # the thread waits for a call
        self._failure: BaseException | None = None
        self._lost: list[GpuWork] = []  # their kernels may still use the tensors
        self._closed: str | None = None
        _live.add(self)

    # Calls.

    def submit(
        self, what: str, run: Callable[[], Any], tensors: list[torch.Tensor], options: Any
    ) -> GpuWork:
        """Runs `run`, which makes calls and runs kernels of PyTorch for them."""
        self.check(what)
        current = _devices.current(self.device)
        work = GpuWork(what, self, tensors)
        with self._queueing, torch.no_grad():
            if self._batch:
                self.send_batch()
            if blocks(options) and self.bracket is None:
                self.stream = current
                run()
                return work
            self._order.follow(current)
            with self.on_side():
                self.stream = self._side.cuda_stream
                run()
            self._queued(work, self._order.mark(self._side.cuda_stream), (run, tensors), options)
        return work

    def launch(
        self, kind: str, send: torch.Tensor, recv: torch.Tensor, count: int, type: int, op: str, root: int,
        tensors: list[torch.Tensor], options: Any,
    ) -> GpuWork:  # fmt: skip
        """Queues one collective of the library on contiguous tensors, which no other kernel follows."""
        self.check(kind)
        current = _devices.current(self.device)
        work = GpuWork(kind, self, tensors)
        arguments = (kind, send.data_ptr(), recv.data_ptr(), count, type, op, root, current)
        with self._queueing:
            if self._batch:
                self.send_batch()
            if blocks(options) and self.bracket is None:
                self.core.launch(*arguments)
                return work
            mark = self.core.launch(*arguments, self._order)
            self._queued(work, mark, (send, recv), options)
        return work

    def _queued(self, work: GpuWork, mark: Any, uses: Any, options: Any) -> None:
        """Follows up on a call whose end on the engine's stream is `mark`."""
        work._limit = seconds(options)
        self._begun([work], mark, uses)
        if not mark.captured:  # that of a graph cannot be asked
            self._last = mark
        if self.bracket is not None:
            self.bracket.append(work)

    def on_side(self) -> Any:
        """Makes the engine's stream the current one in the block."""
        return _devices.on_stream(self._side)

    def on_current(self, what: str, run: Callable[[], Any]) -> None:
        """Runs a call on the current stream."""
        self.check(what)
        with self._queueing:
            if self._batch:
                self.send_batch()
            self.stream = _devices.current(self.device)
            run()

    def message(self, what: str, sends: bool, tensor: torch.Tensor, peer: int) -> GpuWork:
        """Queues a message. It runs with those that come after it, when one of them is waited for.

        So a send and a receive of two ranks that both send first run at the same time.
        """
        self.check(what)
        streams = _devices.streams
        work = GpuWork(what, self, [tensor])
        data = in_order(tensor, read=sends)
        ready = self._order.mark(_devices.current(self.device))
        with self._queueing:
            work._waits = True
            self._captured = streams.is_current_stream_capturing()
            self._batch.append(_Message(sends, data, tensor, peer, work, ready))
            if self.bracket is not None:
                self.bracket.append(work)
        if not self._captured:
            with self._changed:
                self._start()
        return work

    def send_batch(self) -> None:
        """Runs the messages that wait."""
        with self._queueing:
            batch, self._batch = self._batch, []
            if not batch:
                return
            works = [message.work for message in batch]
            for work in works:
                work._waits = False
            try:
                self._run_batch(batch)
            except Exception as error:  # noqa: BLE001  `wait` raises it
                for work in works:
                    work._error = error
                return
            self._begun(works, self._order.mark(self._side.cuda_stream), batch)

    def _run_batch(self, batch: list[_Message]) -> None:
        for message in batch:
            message.ready.let_wait(self._side.cuda_stream)
        given = [(m.sends, m.data.data_ptr(), *extent(m.data), m.peer) for m in batch]
        self.core.messages(given, self._side.cuda_stream)
        with self.on_side():
            for message in batch:
                if not message.sends:
                    write_back(message.tensor, message.data)

    def _begun(self, works: list[GpuWork], mark: Any, uses: Any) -> None:
        """Keeps what calls on the engine's stream use until they have reached `mark`, their end."""
        for work in works:
            work._mark = mark
        with self._changed:
            if mark.captured:
                self._graph_uses.append((mark, uses))
                return
            self._graph_uses.clear()  # the capture is over
            works[0]._kept = uses
            self._drop_ended()
            self._pending.extend(works)
            self._start()

    def joined(self, mark: Any) -> None:
        """Lets go of what captured calls use, up to that of `mark`, for which a stream waits."""
        with self._changed:
            at = [index for index, (known, _) in enumerate(self._graph_uses) if known is mark]
            del self._graph_uses[: at[0] + 1 if at else 0]

    def follow(self, work: GpuWork) -> None:
        """Lets `work`, whose mark is that of another, fail with the calls that have not ended."""
        with self._changed:
            if self._failure is not None:
                work._error = work._error or self._failure
            elif work._error is None and work._mark is not None and not work._mark.captured:
                self._pending.append(work)

    def check(self, what: str) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed is not None:
            raise AbortedError(f"{what} ({self._closed})", rank=self.rank)

    def group(self, simple: bool = True) -> Any:
        """Runs the calls of the block together, at its end, if they do nothing else."""
        return self.core.group() if simple else contextlib.nullcontext()

    def marks(self) -> list[Any]:
        """Returns marks behind the current stream's work and behind the last collective."""
        if _devices.streams.is_current_stream_capturing():
            raise InvalidUsageError(
                f"rank {self.rank} calls barrier while its stream captures a CUDA graph, and a barrier "
                "waits on the host; call it before or after the capture"
            )
        mark = self._order.mark(_devices.current(self.device))
        return [mark] if self._last is None else [mark, self._last]

    def wait_for(self, marks: list[Any]) -> None:
        """Blocks until the marks have been reached, or the communicator has failed."""
        for mark in marks:
            while not mark.reached():
                self.look()
                if self._failure is not None:
                    raise self._failure
                time.sleep(POLL_S)

    # Ends of calls.

    def _drop_ended(self) -> None:
        """Lets go of calls that have ended. A kernel ends as well if the communicator has failed."""
        if not self._pending or not self._pending[0]._ended():
            return
        ended = [self._pending.popleft()]
        while self._pending and self._pending[0]._ended():
            ended.append(self._pending.popleft())
        try:
            self.core.status()
        except Error as error:
            self._pending.extendleft(reversed(ended))
            self.fail(error)
            return
        for work in ended:
            work._kept = None

    def _start(self) -> None:
        """Lets the thread look at calls. The caller holds the lock."""
        if self._idle:
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name=self._name, daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        """Runs messages that nobody waits for, lets go of tensors, and finds failures."""
        try:
            self._watch_calls()
        except Exception as error:  # noqa: BLE001  such as that of CUDA; the calls raise it
            self.fail(error)

    def _watch_calls(self) -> None:
        _devices.allow_other_captures()
        while self._closed is None and self._failure is None:
            with self._changed:
                while not self._pending and not self._batch and self._closed is None:
                    self._idle = True
                    self._changed.wait()
                self._idle = False
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
        error = timed_out(f"{text}; {report_of(self.comm)}", self.rank)
        if ends:
            self.comm.abort(text)
        return error

    # The end.

    def left(self) -> int:
        """Returns the number of calls that have not ended. After a failure it is 0."""
        self.send_batch()
        self.look()
        return len(self._pending)

    def close(self, why: str, *, together: bool) -> None:
        """Ends the communicator. `together`: with the other ranks, for some seconds; else alone."""
        if self._closed is not None:
            return
        self._closed = why
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_THREAD_END_S)
        if together and self._failure is None:
            bounded(lambda: _quietly(self.comm.finalize), lambda: _quietly(self.comm.abort, why), END_S)
        else:
            _quietly(self.comm.abort, why)
        if self._pending:
            self.fail(AbortedError(f"a call has not ended ({why})", rank=self.rank))
        let_go(self)


def _quietly(end: Callable[..., None], *arguments: Any) -> None:
    try:
        end(*arguments)
    except Error:
        pass  # a rank that has failed or ended before


os.register_at_fork(after_in_child=_live.clear)  # a forked process has no threads of engines


@atexit.register
def _end_all() -> None:
    """Ends the threads: one that returns from a call of PyTorch as the interpreter ends aborts it."""
    for engine in list(_live):
        engine.close("the process ends", together=False)
