"""Work objects of calls on CUDA streams."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from . import _devices
from ._work import LIMIT_S, HeldWork

if TYPE_CHECKING:
    from ._gpu_engine import GpuEngine

POLL_S = 0.0002


class GpuWork(HeldWork):
    """One call on a CUDA stream.

    `wait` makes the current stream wait for the call, and returns at once. With a timeout it blocks
    until the call has ended. A call that a CUDA graph has captured has no state of its own: it counts
    as completed, and `wait` only orders streams.
    """

    # Of the class, until they differ: the thread of a backward pass makes a work for each bucket.
    # End of the call on the engine's stream, a _core.Mark; None: it runs on the caller's current one.
    _mark: Any = None
    _kept: Any = None  # what the call reads and writes, until it has ended
    _limit: float | None = None
    _error: BaseException | None = None
    _waits = False  # a message that waits for others of its batch

    def __init__(self, name: str, engine: GpuEngine, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._name, self._engine, self._tensors = name, engine, tensors
        self._begun = time.monotonic()

    def _owner(self) -> GpuEngine:
        return self._engine

    def _settle(self) -> None:
        """Runs it if it is a message that waits for others of its batch."""
        if self._waits:
            self._engine.send_batch()

    def _ended(self) -> bool:
        self._settle()
        mark = self._mark
        return mark is None or mark.captured or mark.reached()

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._settle()
        if self._error is not None:
            raise self._error
        limit = min(timeout.total_seconds(), LIMIT_S) if timeout else 0.0
        mark = self._mark
        if mark is None:
            return True
        if limit > 0 and not mark.captured:
            self._block(limit)
        else:
            mark.let_wait(_devices.current(self._engine.device))
            if mark.captured:
                self._engine.joined(mark)
        return True

    def _block(self, limit: float) -> None:
        end = time.monotonic() + limit
        while not self._ended():
            self._engine.look()
            if self._error is not None:
                raise self._error
            if time.monotonic() > end:
                raise self._engine.expired(self._name, limit, ends=False)
            time.sleep(POLL_S)

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._error is not None or self._ended()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        if self._error is None and self._mark is not None:
            self._engine.look()  # a kernel ends as well if the communicator fails
        return self._error

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._results()

    def source_rank(self) -> int:
        return -1

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Returns a future that is complete on the call's stream: its value waits as `wait` does."""
        self._settle()
        future = _devices.future(self._engine.device)
        if self._error is not None:
            future.set_exception(self._error)
        elif self._mark is None:
            future.set_result(self._results())
        else:
            with self._engine.on_side():
                future.set_result(self._results())
        return future


def joined_on_gpu(name: str, engine: GpuEngine, works: list[GpuWork]) -> GpuWork:
    """Returns a work that has ended when all `works` have. They run on one stream."""
    engine.send_batch()
    whole = GpuWork(name, engine, [t for work in works for t in work._results()])
    if works:
        last = works[-1]
        whole._mark = last._mark
        whole._error = next((work._error for work in works if work._error is not None), None)
        engine.follow(whole)
    return whole
