"""Messages of a rank to itself on a GPU: copies, for which no other rank and no communicator is needed."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, NamedTuple

import torch

from .._errors import AbortedError, InvalidUsageError, MismatchError
from . import _devices
from ._checks import in_order, write_back, writing
from ._gpu_work import GpuWork
from ._work import let_go, timed_out


class OwnWork(GpuWork):
    """Send or receive of a message to oneself. It has no end until both of them have been called."""

    _waits = True

    def __init__(self, name: str, owner: Any, tensors: list[torch.Tensor]) -> None:
        super().__init__(name, owner, tensors)

    def _settle(self) -> None:
        if self._waits:
            raise InvalidUsageError(
                f"{self._name} is waited for, and the same rank has not called its other end, which it still "
                "may; call both before one is waited for"
            )

    def _ended(self) -> bool:
        return not self._waits and super()._ended()


class _End(NamedTuple):
    """Send or receive whose other end has not been called."""

    sends: bool
    tensor: torch.Tensor
    work: OwnWork
    ready: Any  # mark behind what the caller's stream does with `tensor`


class OwnMessages:
    """Messages of a rank to itself on one GPU. They match in order, and are copied on a stream of their own."""

    def __init__(self, rank: int, device: torch.device) -> None:
        self.rank, self.device = rank, device
        self._side = _devices.streams.Stream(device)
        self._order = _devices.SideStream(self._side.cuda_stream)
        self._lock = threading.Lock()
        self._waiting: deque[_End] = deque()  # sends alone, or receives alone
        self._closed: str | None = None

    def message(self, what: str, sends: bool, tensor: torch.Tensor) -> OwnWork:
        """Takes one end of a message. The second one queues the copy."""
        work = OwnWork(what, self, [tensor])
        end = _End(sends, tensor, work, self._order.mark(_devices.current(self.device)))
        with self._lock:
            if self._closed is not None:
                raise AbortedError(f"{what} ({self._closed})", rank=self.rank)
            if not self._waiting or self._waiting[0].sends == sends:
                self._waiting.append(end)
                return work
            other = self._waiting.popleft()
            self._run(*((end, other) if sends else (other, end)))
        return work

    def _run(self, send: _End, receive: _End) -> None:
        try:
            mark = self._copied(send, receive)
        except Exception as error:  # noqa: BLE001  `wait` raises it
            mark, send.work._error, receive.work._error = None, error, error
        for work in (send.work, receive.work):
            work._mark, work._waits = mark, False

    def _copied(self, send: _End, receive: _End) -> Any:
        """Queues the copy behind what both callers' streams do, and returns a mark behind it."""
        source, target = send.tensor, receive.tensor
        if source.nbytes != target.nbytes:
            raise MismatchError(
                f"rank {self.rank} sends itself {source.nbytes} bytes, and receives {target.nbytes}; both "
                "must be the same", rank=self.rank, peer=self.rank,
            )  # fmt: skip
        for end in (send, receive):
            end.ready.let_wait(self._side.cuda_stream)
            _devices.keep(end.tensor, self._side)
        with self.on_side(), writing([target]):
            if source.dtype == target.dtype and source.shape == target.shape:
                target.copy_(source)
            else:
                used = in_order(target, read=False)
                _bytes(used).copy_(_bytes(in_order(source)))
                write_back(target, used)
        return self._order.mark(self._side.cuda_stream)

    # As the works ask an engine.

    def on_side(self) -> Any:
        return _devices.on_stream(self._side)

    def look(self) -> None:
        """Finds no failure: a copy waits for no rank."""

    def joined(self, mark: Any) -> None:
        """Lets go of nothing: the allocator keeps what copies use."""

    def expired(self, what: str, limit: float, ends: bool) -> Exception:
        return timed_out(f"{what} of rank {self.rank} has not ended after {limit:g} s", self.rank, self.rank)

    def close(self, why: str) -> None:
        """Fails the calls whose other end has not come, and those to come."""
        with self._lock:
            self._closed = self._closed or why
            left, self._waiting = list(self._waiting), deque()
        for end in left:
            end.work._error = AbortedError(f"{end.work._name} ({why})", rank=self.rank)
            end.work._waits = False
        let_go(self)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the memory of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8)
