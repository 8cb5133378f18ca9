"""Messages of a process group: those of CPU tensors, and those of its engine of GPUs."""

from __future__ import annotations

from typing import Any, Callable

from .. import _errors
from . import _devices
from ._checks import one_of
from ._cpu_engine import CpuEngine
from ._gpu_engine import GpuEngine
from ._messages import Messages
from ._own_messages import OwnMessages
from ._tensors import dense
from ._work import Work, timed_out


class PointToPoint:
    """Sends and receives of a process group."""

    rank_: int
    size_: int
    _on: Callable[..., Any]  # engine of the tensors' device
    _own: Callable[[Any], OwnMessages]
    _gpu: GpuEngine | None
    _cpu: CpuEngine
    _messages: Messages
    _timeout_s: float
    _ended: str | None

    def send(self, tensors: list[Any], to: int, tag: int = 0) -> Any:
        tensor = dense(one_of(tensors, "send"), "the tensor of send")
        self._check_peer(to, "send to", tensor)
        if _devices.is_gpu(tensor):
            return self._gpu_message(f"send to rank {to}", True, tensor, to)
        work = self._message(f"send to rank {to} (tag {tag})", tensor, to)
        if self._cpu.bracket is not None:
            self._cpu.bracket.append(work)
        self._messages.send(work, tensor, to, tag)
        return work

    def recv(self, tensors: list[Any], source: int, tag: int = 0) -> Any:
        tensor = dense(one_of(tensors, "recv"), "the tensor of recv")
        self._check_peer(source, "receive from", tensor)
        if _devices.is_gpu(tensor):
            return self._gpu_message(f"recv from rank {source}", False, tensor, source)
        return self._receive(tensor, source, tag, f"recv from rank {source} (tag {tag})")

    def _gpu_message(self, what: str, sends: bool, tensor: Any, peer: int) -> Any:
        gpu = self._gpu
        # A region has an engine, and ends with the stream of the engine.
        if peer != self.rank_ or (gpu is not None and gpu.bracket is not None):
            return self._on(tensor).message(what, sends, tensor, peer)
        return self._own(tensor).message(what, sends, tensor)

    def recv_anysource(self, tensors: list[Any], tag: int = 0) -> Work:
        tensor = dense(one_of(tensors, "recv"), "the tensor of recv")
        if _devices.is_gpu(tensor):
            raise _errors.NotSupportedError(
                f"rank {self.rank_} cannot receive from any rank into a tensor on {tensor.device}; "
                "name the source, or receive into CPU memory"
            )
        return self._receive(tensor, None, tag, f"recv from any rank (tag {tag})")

    def _receive(self, tensor: Any, source: int | None, tag: int, what: str) -> Work:
        work = self._message(what, tensor, -1 if source is None else source)
        work._queued()
        if self._cpu.bracket is not None:
            self._cpu.bracket.append(work)
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

    def _check_peer(self, peer: int, what: str, tensor: Any) -> None:
        """Refuses what is no rank. A rank's own messages are for tensors on a GPU, as in NCCL."""
        if not 0 <= peer < self.size_:
            raise _errors.InvalidArgumentError(
                f"rank {self.rank_} cannot {what} rank {peer} (the group has ranks 0 to {self.size_ - 1})"
            )
        if peer == self.rank_ and not _devices.is_gpu(tensor):
            raise _errors.InvalidArgumentError(
                f"rank {self.rank_} cannot {what} itself with a tensor in CPU memory; copy it"
            )
