"""Messages between two ranks, matched by source and tag.

Each direction between two ranks has a communicator of its own, so that messages wait neither for
collectives nor for messages of other ranks. Its sender creates it with the first message, and puts
its id into the group's store. A message is a header (tag, bytes), then the data.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from .._communicator import Communicator, UniqueId
from .._errors import AbortedError, Error, MismatchError
from ._checks import in_order, write_back
from ._ending import delete
from ._tensors import BYTES, INT64
from ._work import Line, Work

_HEADER = 2
_BYE = -1  # bytes of the header after the last message


def _key(source: int, to: int) -> str:
    return f"ccl/messages/{source}/{to}"


class _Out:
    """Messages to one rank."""

    def __init__(self, group: Any, to: int) -> None:
        self._group, self._to = group, to
        self._comm: Communicator | None = None
        self._invited = False  # the id is in the store, unless the receiver has taken it
        self._first: Work | None = None  # while it waits for the receiver to connect
        self.line = Line(f"ccl send to {to}")

    def _connect(self) -> Communicator:
        if self._comm is None:
            id = UniqueId.create()
            self._invited = True
            self._group.store.set(_key(self._group.rank_, self._to), id.bytes)
            self._comm = self._group.communicator(id, 0, 2, f"from {self._group.rank_} to {self._to}")
            if self.line.closed is not None:  # meanwhile: the receiver is one of a later group
                self._comm.abort(self.line.closed)
        return self._comm

    def send(self, work: Work, tensor: torch.Tensor, tag: int) -> None:
        self._first = work
        core = self._connect()._core
        self._first = None
        tensor = in_order(tensor)
        bytes = _bytes(tensor)
        header = torch.tensor([tag, bytes])
        core.messages([(True, header.data_ptr(), _HEADER, INT64, 1)], None)
        if bytes:
            core.messages([(True, tensor.data_ptr(), bytes, BYTES, 1)], None)

    def end(self, limit: float) -> None:
        """Sends what is queued, and ends the communicator with its receiver."""
        if self.line.drain(limit) and self._comm is not None:
            header = torch.tensor([0, _BYE])
            self._comm._core.messages([(True, header.data_ptr(), _HEADER, INT64, 1)], None)
            self._comm.finalize()
        elif self._comm is None and self._invited:  # a later group that has the same store must not find it
            delete(self._group.store, _key(self._group.rank_, self._to))

    def abort(self, why: str) -> None:
        self.line.close(why)
        comm, first = self._comm, self._first
        if comm is not None:
            comm.abort(why)
        elif first is not None:  # its thread ends when the creation does
            first._finish(AbortedError(f"{first._name} ({why})", rank=self._group.rank_, peer=self._to))


class _Receive:
    """A receive that waits for its message."""

    def __init__(self, tensor: torch.Tensor, source: int | None, tag: int, work: Work) -> None:
        self.tensor, self.source, self.tag, self.work = tensor, source, tag, work

    def takes(self, source: int, tag: int) -> bool:
        return self.tag == tag and self.source in (None, source)


class _In:
    """Messages from one rank, read by a thread."""

    def __init__(self, inbox: Inbox, source: int) -> None:
        self._inbox, self._source = inbox, source
        self._comm: Communicator | None = None
        self.thread = threading.Thread(target=self._run, name=f"ccl recv from {source}", daemon=True)
        self.thread.start()

    def abort(self, why: str) -> None:
        if self._comm is not None:
            self._comm.abort(why)

    def _run(self) -> None:
        try:
            comm = self._connect()
            if comm is not None:
                while self._read_one(comm._core):
                    pass
                comm.finalize()
        except Exception as error:  # noqa: BLE001  the receives raise it
            self._inbox.fail(self._source, error)

    def _connect(self) -> Communicator | None:
        """Waits for the sender's id, or the group's end. Polls: a wait would lock this process's store."""
        group, pause = self._inbox.group, 0.0005
        key = _key(self._source, group.rank_)
        while not group.store.check([key]):
            if self._inbox.ending:
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        id = UniqueId(group.store.get(key))
        delete(group.store, key)  # a later group that has the same store must not find it
        self._comm = group.communicator(id, 1, 2, f"from {self._source} to {group.rank_}")
        return self._comm

    def _read_one(self, core: Any) -> bool:
        inbox = self._inbox
        inbox.wait_for_receive(self._source)
        header = torch.empty(_HEADER, dtype=torch.int64)
        core.messages([(False, header.data_ptr(), _HEADER, INT64, 0)], None)
        tag, bytes = header.tolist()
        if bytes == _BYE:
            inbox.fail(self._source, AbortedError(
                f"rank {self._source} has ended the group, and sends nothing to rank "
                f"{inbox.group.rank_} any more", rank=inbox.group.rank_, peer=self._source))  # fmt: skip
            return False
        receive = inbox.claim(self._source, tag)
        if receive is None:
            inbox.keep(self._source, tag, self._read(core, bytes))
            return True
        try:
            self._read_into(core, receive, bytes)
        except Exception as error:
            receive.work._finish(error)  # no other would, as it waits no more
            raise
        return True

    def _read(self, core: Any, bytes: int, into: torch.Tensor | None = None) -> torch.Tensor:
        into = torch.empty(bytes, dtype=torch.uint8) if into is None else into
        if bytes:
            core.messages([(False, into.data_ptr(), bytes, BYTES, 0)], None)
        return into

    def _read_into(self, core: Any, receive: _Receive, bytes: int) -> None:
        if bytes != _bytes(receive.tensor):
            self._read(core, bytes)
            receive.work._finish(self._inbox.misfit(receive, self._source, bytes))
            return
        into = self._read(core, bytes, in_order(receive.tensor, read=False))
        write_back(receive.tensor, into)
        receive.work._source = self._source
        receive.work._finish(None)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class Inbox:
    """Receives of one rank that wait for messages, and messages that wait for receives."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.ending = False
        self._changed = threading.Condition()
        self._waiting: list[_Receive] = []
        self._kept: list[tuple[int, int, torch.Tensor]] = []  # source, tag, data
        self._in: dict[int, _In] = {}
        self._failed: dict[int, Exception] = {}

    def receive(self, tensor: torch.Tensor, source: int | None, tag: int, work: Work) -> None:
        receive = _Receive(tensor, source, tag, work)
        with self._changed:
            for i, (of, its_tag, data) in enumerate(self._kept):
                if receive.takes(of, its_tag):
                    del self._kept[i]
                    break
            else:
                of = None
                self._post(receive)
        if of is not None:
            self._copy(receive, of, data)

    def _post(self, receive: _Receive) -> None:
        group = self.group
        every = [r for r in range(group.size_) if r != group.rank_]
        sources = every if receive.source is None else [receive.source]
        gone = [self._failed[r] for r in sources if r in self._failed]
        if len(gone) == len(sources):
            receive.work._finish(gone[0])
            return
        self._waiting.append(receive)
        for source in sources:
            if source not in self._in:
                self._in[source] = _In(self, source)
        self._changed.notify_all()

    def _copy(self, receive: _Receive, source: int, data: torch.Tensor) -> None:
        if data.numel() != _bytes(receive.tensor):
            receive.work._finish(self.misfit(receive, source, data.numel()))
            return
        if data.numel():
            tensor = receive.tensor
            write_back(tensor, data.view(tensor.dtype).view(tensor.shape))
        receive.work._source = source
        receive.work._finish(None)

    def misfit(self, receive: _Receive, source: int, bytes: int) -> MismatchError:
        return MismatchError(
            f"the tensor of rank {self.group.rank_} has {_bytes(receive.tensor)} bytes, and the "
            f"message of rank {source} with tag {receive.tag} has {bytes}; both must be the same",
            rank=self.group.rank_, peer=source,
        )  # fmt: skip

    def forget(self, work: Work) -> None:
        """Takes a receive back, because its deadline has passed."""
        with self._changed:
            self._waiting = [r for r in self._waiting if r.work is not work]

    def wait_for_receive(self, source: int) -> None:
        """Blocks until a receive may take a message of `source`, or the group ends."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.ending or any(r.source in (None, source) for r in self._waiting)
            )

    def claim(self, source: int, tag: int) -> _Receive | None:
        """Returns the first receive for a message, or None if other receives wait behind it.

        Without any receive it waits for one, so that messages do not pile up here.
        """
        with self._changed:
            while True:
                for i, receive in enumerate(self._waiting):
                    if receive.takes(source, tag):
                        return self._waiting.pop(i)
                if self.ending or any(r.source in (None, source) for r in self._waiting):
                    return None
                self._changed.wait()

    def keep(self, source: int, tag: int, data: torch.Tensor) -> None:
        with self._changed:
            for i, receive in enumerate(self._waiting):  # one that came while the data was read
                if receive.takes(source, tag):
                    del self._waiting[i]
                    break
            else:
                self._kept.append((source, tag, data))
                return
        self._copy(receive, source, data)

    def fail(self, source: int, error: Exception) -> None:
        """Fails the receives that only `source` can serve, now and later."""
        with self._changed:
            self._failed[source] = error
            others = self.group.size_ - 1
            lost = [r for r in self._waiting
                    if r.source == source or (r.source is None and len(self._failed) == others)]  # fmt: skip
            self._waiting = [r for r in self._waiting if r not in lost]
        for receive in lost:
            receive.work._finish(error)

    def end(self) -> None:
        with self._changed:
            self.ending = True
            self._changed.notify_all()

    def join(self, limit: float) -> None:
        end = time.monotonic() + limit
        for one in list(self._in.values()):
            one.thread.join(max(0.0, end - time.monotonic()))

    def abort(self, why: str) -> None:
        self.end()
        for one in list(self._in.values()):
            one.abort(why)
        with self._changed:
            lost, self._waiting = self._waiting, []
        for receive in lost:
            receive.work._finish(AbortedError(f"{receive.work._name} ({why})", rank=self.group.rank_))


class Messages:
    """Sends and receives of one rank in a group."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._out: dict[int, _Out] = {}
        self._lock = threading.Lock()
        self.inbox = Inbox(group)

    def send(self, work: Work, tensor: torch.Tensor, to: int, tag: int) -> None:
        with self._lock:
            out = self._out.get(to)
            if out is None:
                out = self._out[to] = _Out(self._group, to)
        work._run = lambda: out.send(work, tensor, tag)
        out.line.submit(work, inline=False)

    def end(self, limit: float) -> None:
        """Delivers what is queued, and ends all communicators. Ranks end them at the same time."""
        self.inbox.end()
        ends = [threading.Thread(target=_quietly, args=(out.end, limit), daemon=True)
                for out in self._out.values()]  # fmt: skip
        for thread in ends:
            thread.start()
        deadline = time.monotonic() + limit
        for thread in ends:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.inbox.join(max(0.0, deadline - time.monotonic()))
        self.abort("the group has ended")

    def abort(self, why: str) -> None:
        for out in list(self._out.values()):
            _quietly(out.abort, why)
        _quietly(self.inbox.abort, why)


def _quietly(call: Any, *arguments: Any) -> None:
    try:
        call(*arguments)
    except Error:
        pass  # a peer that is gone already
