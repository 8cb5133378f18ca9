"""The process group: membership, engines of its devices, messages and the end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from .. import _errors
from .._communicator import Communicator, UniqueId
from . import _devices
from ._cpu_engine import CpuEngine
from ._ending import END_S, Ending, delete, forget
from ._gpu_engine import GpuEngine
from ._gpu_work import joined_on_gpu
from ._messages import Messages
from ._movements import Movements
from ._own_messages import OwnMessages
from ._point_to_point import PointToPoint
from ._reductions import Reductions
from ._tensors import dense
from ._work import LIMIT_S, Work, joined, timed_out

NAME = "ccl_comm"

_live: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()


class _NoSplit:
    """Group for a caller that would give it to a new group of NCCL, which splits none but its own."""

    supports_splitting = False

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


class ProcessGroup(Reductions, Movements, PointToPoint, dist.ProcessGroup):  # type: ignore[misc]
    """Group of ranks, for tensors in CPU memory and on one CUDA device of each rank.

    Collectives run in the order of their calls. On CPU tensors, a call with ``async_op=True`` runs
    in a thread of the group; on CUDA tensors, on a stream of the group.
    """

    supports_splitting = True
    supports_coalescing = False  # by messages alone: those of a batch find each other anyway
    options = None

    def __init__(
        self, store: Any, rank: int, ranks: int, timeout: timedelta, label: str = "",
        comm: Communicator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(rank, ranks)  # type: ignore[call-arg]
        self.store, self.rank_, self.size_ = store, rank, ranks
        self._timeout_s = min(timeout.total_seconds(), LIMIT_S)
        self._label = self._name = label
        self._text = "undefined"
        self._ended: str | None = None
        if rank == 0:
            forget(store)
        self._comm = comm or self._connected("ccl/id", "")
        self._cpu = CpuEngine(self._comm, label)
        self._gpu: GpuEngine | None = None
        self._to_itself: dict[torch.device, OwnMessages] = {}
        self._creating = threading.Lock()
        self._own_lock = threading.Lock()  # for `_to_itself`: `abort` must not wait for other ranks
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

    def _id(self, key: str) -> UniqueId:
        if self.rank_ == 0:
            id = UniqueId.create()
            self.store.set(key, id.bytes)
            return id
        begin = time.monotonic()
        try:
            self.store.wait([key], timedelta(seconds=self._timeout_s))
            return UniqueId(self.store.get(key))
        except RuntimeError as error:
            waited = time.monotonic() - begin
            if waited < 0.9 * self._timeout_s:
                raise _errors.NetworkError(
                    f"rank {self.rank_} waited {waited:.1f} s for rank 0 to create group "
                    f"{self._label!r}, and the group's store has failed: {error}", rank=self.rank_
                ) from error  # fmt: skip
            raise timed_out(
                f"rank {self.rank_} waited for rank 0, which has not created group "
                f"{self._label!r} after {self._timeout_s:g} s: {error}", self.rank_, 0
            ) from error  # fmt: skip

    def _connected(self, key: str, what: str, device: int | None = None) -> Communicator:
        """Creates a communicator of the group, whose id rank 0 puts into the store."""
        compares = True if dist.get_debug_level() == dist.DebugLevel.DETAIL else None  # None: by CCL_CHECK
        comm = self.communicator(
            self._id(key), self.rank_, self.size_, what, self._timeout_s, device, compares
        )
        if self.rank_ == 0:
            delete(self.store, key)  # a later group that has the same store must not find it
        return comm

    def communicator(
        self, id: UniqueId, rank: int, ranks: int, what: str, timeout_s: float = 0.0,
        device: int | None = None, check: bool | None = None,
    ) -> Communicator:  # fmt: skip
        name = f"torch {self._label} {what}".strip()
        return Communicator(id, rank, ranks, device=device, name=name, timeout=timeout_s,
                            init_timeout=self._timeout_s, check=check)  # fmt: skip

    # What torch asks about it.

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device("cuda")]

    def _get_backend(self, device: Any) -> Any:
        device = torch.device(device)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"{NAME} has no backend for {device}")
        if device.index is not None and self.bound_device_id is not None:
            return _NoSplit(self)
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

    # Engines.

    def _on(self, tensor: Any, *others: Any) -> Any:
        """Returns the engine of the device that all tensors are on."""
        for other in others:
            if other.device != tensor.device:
                raise _errors.InvalidArgumentError(
                    f"a call of rank {self.rank_} has tensors on {tensor.device} and {other.device}; "
                    "all must be on one device"
                )
        self._collectives += 1
        if not _devices.is_gpu(tensor):
            if tensor.device.type != "cpu":
                dense(tensor, "a tensor")  # which says what is supported
            return self._cpu
        gpu = self._gpu
        if gpu is None or gpu.device != tensor.device:
            gpu = self._gpu_engine(tensor.device)
        return gpu

    _collectives = 0

    def _gpu_engine(self, device: Any) -> GpuEngine:
        """Creates the communicator of GPUs at the first call, which all ranks make."""
        device = _devices.numbered(device)
        with self._creating:
            if self._gpu is None:
                if self._ended is not None:
                    raise _errors.AbortedError(f"the call of rank {self.rank_} ({self._ended})",
                                               rank=self.rank_)  # fmt: skip
                comm = self._connected("ccl/gpu", "GPU", device.index or 0)
                self._gpu = GpuEngine(comm, device, f"ccl {self._label} GPU")
            if self._gpu.device != device:
                raise _errors.InvalidArgumentError(
                    f"rank {self.rank_} of this group works on {self._gpu.device}, and a tensor is on "
                    f"{device}; a rank has one device (torch.cuda.set_device before its first call)"
                )
            return self._gpu

    def _own(self, tensor: Any) -> OwnMessages:
        """Returns the messages of this rank to itself, which it may send before the GPUs are connected."""
        self._collectives += 1
        if self._gpu is not None:
            self._gpu_engine(tensor.device).check("a message to itself")
        device = _devices.numbered(tensor.device)
        with self._own_lock:
            if self._ended is not None:
                raise _errors.AbortedError(f"a message of rank {self.rank_} to itself ({self._ended})",
                                           rank=self.rank_)  # fmt: skip
            if device not in self._to_itself:
                self._to_itself[device] = OwnMessages(self.rank_, device)
            return self._to_itself[device]

    def _end_own(self, why: str) -> None:
        with self._own_lock:
            every = list(self._to_itself.values())
        for own in every:
            own.close(why)

    def eager_connect_single_device(self, device: Any) -> None:
        """Connects the GPUs of all ranks, since the caller has given the device of this rank."""
        self._gpu_engine(device)
        self.bound_device_id = _devices.numbered(device)

    def perform_nocolor_split(self, device: Any) -> None:
        pass  # new groups come from the store

    def split_group(  # type: ignore[override]
        self, ranks: list[int], timeout: timedelta | None = None, opts: Any = None,
        group_name: str | None = None, group_desc: str | None = None,
    ) -> ProcessGroup | None:  # fmt: skip
        """Creates a group of some ranks of this one. All ranks of this one call it."""
        member = self.rank_ in ranks
        color, key = (min(ranks), ranks.index(self.rank_)) if member else (None, 0)
        parts: list[Communicator | None] = []
        whole = [self._comm] + ([self._gpu.comm] if self._gpu else [])
        run = lambda: parts.extend(comm.split(color, key) for comm in whole)  # noqa: E731
        work = Work("split_group", run, [], None, self._cpu.expired)
        self._cpu.line.submit(work, inline=False)
        work.wait()
        if not member:
            return None
        name = group_name or f"{self._name}:{ranks}"
        store = PrefixStore(f"{name}/{min(ranks)}/", self.store)  # parts may share a name
        limit = timeout or timedelta(seconds=self._timeout_s)
        group = ProcessGroup(store, key, len(ranks), limit, name, parts[0])
        group._text = group_desc or group._text
        group.bound_device_id = self.bound_device_id
        if self._gpu is not None:
            group._gpu = GpuEngine(parts[1], self._gpu.device, f"ccl {name} GPU")  # type: ignore[arg-type]
        return group

    # Brackets and barriers.

    def _start_coalescing(self, device: Any) -> None:
        self._get_backend(device)
        on = self._gpu_engine(device) if _devices.has_gpu(device) else self._cpu
        if on.bracket is not None:
            raise _errors.InvalidUsageError("a coalescing region of this group is open already")
        on.bracket = []

    def _end_coalescing(self, device: Any = None) -> Any:
        gpu, cpu = self._gpu, self._cpu
        if gpu is not None and gpu.bracket is not None:
            on_gpu, gpu.bracket = gpu.bracket, None
            return joined_on_gpu("coalesced calls", gpu, on_gpu)
        works, cpu.bracket = cpu.bracket or [], None
        return joined("coalesced calls", works, self._cpu.expired)

    start_coalescing, end_coalescing = _start_coalescing, _end_coalescing

    def barrier(  # type: ignore[override]
        self, opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Waits for all ranks, and for what their GPUs have been given in this group."""
        gpu = self._gpu
        marks = gpu.marks() if gpu is not None else []

        def run() -> None:
            if gpu is not None:
                gpu.wait_for(marks)
            self._cpu.core.barrier()

        self._collectives += 1
        return self._cpu.submit("barrier", run, [], opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose error says which ranks are late."""
        work = Work("monitored_barrier", self._cpu.core.barrier, [], None, self._cpu.expired)
        self._cpu.line.submit(work, inline=False)
        work.wait(timeout)

    # The end.

    def shutdown(self) -> None:
        """Ends the group when its calls are done.

        A rank that is late is waited for. One that has ended the group, or is gone, is waited for
        no longer than 10 s; then the calls that need it fail.
        """
        self._end(at_exit=False)

    def _end(self, *, at_exit: bool) -> None:
        if self._ended is not None:
            return
        self._ended = "the group has ended"
        self._end_own(self._ended)
        ending = Ending(self.store, self.size_, at_exit=at_exit)
        clean = ending.drain(self._gpu.left) if self._gpu is not None else True
        clean = clean and ending.drain(self._cpu.line.left)
        ending.no_calls_left()
        if self._gpu is not None:
            self._gpu.close(self._ended, together=clean)
        if clean:
            self._messages.end(END_S)
        else:
            self._comm.abort(f"rank {self.rank_} has ended the group, with calls that were not done")
            self._messages.abort(self._ended)
        self._cpu.close(self._ended, END_S, together=clean)

    def abort(self, why: str = "") -> None:
        """Ends all calls on all ranks, which raise `ccl.AbortedError`. Waits for no rank."""
        if self._ended is None:
            self._ended = why or f"rank {self.rank_} has aborted the group"
        self._comm.abort(self._ended)
        self._end_own(self._ended)
        if self._gpu is not None:
            self._gpu.close(self._ended, together=False)
        self._messages.abort(self._ended)
        self._cpu.line.close(self._ended)


os.register_at_fork(after_in_child=_live.clear)  # a forked process has no threads of groups


@atexit.register
def _end_all() -> None:
    error = getattr(sys, "last_value", None)  # that the process ends with
    for group in list(_live):
        if error is not None and not hasattr(sys, "ps1"):
            group.abort(f"rank {group.rank_} ended with {type(error).__name__}: {_errors.text_of(error)}")
        else:
            group._end(at_exit=True)
