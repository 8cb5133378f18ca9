"""Work objects, and the thread that runs queued calls in order."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable

import torch
from torch._C._distributed_c10d import Work as _Work

from .._communicator import Communicator
from .._errors import AbortedError, Error, InvalidUsageError, TimedOutError
from ._callbacks import callers
from ._checks import writing

LIMIT_S = 1e9  # seconds; a longer limit is cut to it
_COMPLETION_S = 5.0  # limit on the wait for the futures of a call that is done
_changes = threading.Lock()  # guards the futures of all works; held for some instructions


_HELD_WORKS = 256  # that Python has dropped last
_HELD_BYTES = 4096  # of the tensors of one of them; larger ones are let go


class HeldWork(_Work):
    """Work that answers C++ code which has kept it after Python has dropped it.

    `DistributedDataParallel.join` does so with the work of its all-reduce. Methods of a work whose
    Python object is gone are those of the base class, whose `wait` never ends.
    """

    _name: str
    _tensors: list[torch.Tensor] | None = None

    def _owner(self) -> Any:
        """Returns the engine, whose end ends the work. None: a message, which C++ code does not keep."""
        raise NotImplementedError

    def __del__(self) -> None:
        if _held is None or self._owner() is None:  # `_held`: the interpreter ends
            return
        if self._tensors is not None and sum(t.nbytes for t in self._tensors) > _HELD_BYTES:
            self._tensors = None
        _held.append(self)

    def _results(self) -> list[torch.Tensor]:
        if self._tensors is None:
            raise InvalidUsageError(
                f"the work of {self._name} was dropped, and its tensors with it; keep the work until "
                "its result has been read"
            )
        return self._tensors


_held: deque[HeldWork] = deque(maxlen=_HELD_WORKS)


def let_go(engine: Any) -> None:
    """Forgets the dropped works of an engine that has ended, so that its communicator goes."""
    others = [work for work in list(_held) if work._owner() is not engine]
    _held.clear()
    _held.extend(others)


class Work(HeldWork):
    """One call of a collective or a message: pending, done or failed.

    `wait` raises the error of the call, and returns True otherwise.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], Any] | None,
        tensors: list[torch.Tensor],
        limit: float | None,
        expired: Callable[[str, float, bool], Exception],
    ) -> None:
        super().__init__()
        self._name, self._run, self._tensors = name, run, tensors
        self._limit, self._expired = limit, expired
        self._done, self._source = False, -1
        self._error: BaseException | None = None
        self._event: threading.Event | None = None
        self._trigger: torch.futures.Future[None] | None = None
        self._told: list[threading.Event] = []  # set when the futures are complete
        self._completer: int | None = None  # thread that completes them

    def _owner(self) -> Any:
        return getattr(self._expired, "__self__", None)

    def _execute(self) -> None:
        error, run = None, self._run
        if run is None:  # its deadline has passed while it was queued
            return
        try:
            with writing(self._results()):
                run()
        except BaseException as raised:  # noqa: BLE001  `wait` raises it
            error = raised
        self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        self._run = None  # with the tensors that it kept
        with _changes:
            if self._done:
                return
            self._error, self._done = error, True
            trigger = self._trigger
        if self._event is not None:
            self._event.set()
        if trigger is not None:  # its callbacks may wait for calls that this thread has to run
            callers.run(lambda: self._complete(trigger))

    def _complete(self, trigger: torch.futures.Future[None]) -> None:
        self._completer = threading.get_ident()
        trigger.set_result(None)

    def _queued(self) -> None:
        self._event = threading.Event()

    def wait(self, timeout: Any = None) -> bool:
        """Blocks until the call is done, and raises its error. Its futures are complete then.

        `timeout` is a timedelta; without it the limit is that of the group. After it, `TimedOutError`
        names the rank that is behind.
        """
        if not self._done:
            own = min(timeout.total_seconds(), LIMIT_S) if timeout else 0.0
            limit = own if own > 0 else self._limit
            event = self._event
            assert event is not None  # a call is done when it returns, or has been queued
            if not event.wait(limit) and limit is not None:
                error = self._expired(self._name, limit, own <= 0)
                if own > 0:
                    raise error  # the call continues
                self._finish(error)
        if threading.get_ident() != self._completer:  # a callback of one future may wait, too
            for told in self._told:
                told.wait(_COMPLETION_S)
        return self._outcome()

    def _outcome(self) -> bool:
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._done

    def is_success(self) -> bool:
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._results()

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        with _changes:
            done = self._done
            if not done and self._trigger is None:
                self._trigger = torch.futures.Future()
            trigger = self._trigger
        if trigger is None:
            trigger = torch.futures.Future()
            trigger.set_result(None)
        future = trigger.then(lambda _: self._value())  # an error of C++, where the call failed
        if not done:
            told = threading.Event()
            future.add_done_callback(lambda _: told.set())  # before those of the program
            self._told.append(told)
        return future

    def _value(self) -> list[torch.Tensor]:
        self._outcome()
        return self._results()


def joined(
    name: str, works: list[Work], expired: Callable[[str, float, bool], Exception]
) -> Work:
    """Returns a work that is done when all `works` are."""
    whole = Work(name, None, [t for work in works for t in work._results()], None, expired)

    def wait_for_all() -> None:
        for work in works:
            work.wait()

    whole._run = wait_for_all
    whole._queued()
    threading.Thread(target=whole._execute, name=f"ccl {name}", daemon=True).start()
    return whole


class Line:
    """Runs works one after the other: in a thread of its own, or at once in the caller's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._queue: deque[Work] = deque()
        self._running = threading.Lock()  # held while a work runs
        self._pending = 0  # works that were queued and have not ended
        self._thread: threading.Thread | None = None
        self._closed: str | None = None

    def submit(self, work: Work, *, inline: bool) -> None:
        """Runs `work` here if `inline` and nothing is queued. Otherwise it is queued."""
        with self._changed:
            if self._closed is not None:
                work._finish(AbortedError(f"{work._name} ({self._closed})"))
                return
            mine = inline and self._pending == 0 and self._running.acquire(blocking=False)
            if not mine:
                work._queued()
                self._pending += 1
                self._queue.append(work)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                    self._thread.start()
                self._changed.notify()
        if mine:
            try:
                work._execute()
            finally:
                self._running.release()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    if self._closed is not None:
                        return
                    self._changed.wait()
                work = self._queue.popleft()
            with self._running:
                work._execute()
            del work
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()

    @property
    def closed(self) -> str | None:
        """Why the line has ended, or None."""
        return self._closed

    def left(self) -> int:
        """Returns the number of works that were queued and have not ended."""
        return self._pending

    def drain(self, limit: float) -> bool:
        """Blocks until nothing is queued. Returns False after `limit` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._pending == 0, limit)

    def close(self, why: str) -> None:
        """Ends the thread. Works that have not begun fail with `why`."""
        with self._changed:
            self._closed = self._closed or why
            left, self._queue = list(self._queue), deque()
            self._pending -= len(left)
            self._changed.notify_all()
        for work in left:
            work._finish(AbortedError(f"{work._name} has not begun ({why})"))


def report_of(comm: Communicator) -> str:
    """Returns the state of all ranks, or the reason why it is not known."""
    try:
        return comm.report()
    except Error as error:
        return f"there is no report ({error})"


def timed_out(text: str, rank: int, peer: int = -1) -> TimedOutError:
    return TimedOutError(text, rank=rank, peer=peer)
