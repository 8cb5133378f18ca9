"""Calls on tensors in CPU memory: in the caller's thread, or in order in a thread of the group."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import torch

from .._communicator import Communicator
from .._errors import Error
from ._checks import blocks, seconds
from ._work import Line, Work, let_go, report_of, timed_out


class CpuEngine:
    """Communicator of CPU ranks, and the thread that runs its calls."""

    stream = None
    queues = False  # calls are functions that a thread runs

    def __init__(self, comm: Communicator, label: str) -> None:
        self.comm, self.core, self.rank = comm, comm._core, comm.rank
        self.bracket: list[Work] | None = None
        self.line = Line(f"ccl {label}")

    def submit(self, what: str, run: Callable[[], Any], tensors: list[torch.Tensor], options: Any) -> Work:
        limit = seconds(options)
        work = Work(what, run, tensors, limit, self.expired)
        if self.bracket is not None:
            self.bracket.append(work)
        inline = blocks(options) and limit is None and self.bracket is None
        self.line.submit(work, inline=inline)
        return work

    def on_current(self, what: str, run: Callable[[], Any]) -> None:
        """Runs a call in the caller's thread."""
        run()

    def group(self, simple: bool = True) -> Any:
        return contextlib.nullcontext()

    def expired(self, what: str, limit: float, ends: bool) -> Exception:
        """Returns the error of a call that is not done after `limit` seconds."""
        text = f"{what} of rank {self.rank} is not done after {limit:g} s"
        error = timed_out(f"{text}; {report_of(self.comm)}", self.rank)
        if ends:
            self.comm.abort(text)
        return error

    def close(self, why: str, limit: float, *, together: bool) -> None:
        """Ends the communicator: with the other ranks, or without waiting for any."""
        if together:
            last = Work("the end of the group", self.comm.finalize, [], limit, self.expired)
            try:
                self.line.submit(last, inline=False)
                last.wait()
            except Error:
                pass  # a rank that has failed or ended before
        self.line.close(why)
        let_go(self)
