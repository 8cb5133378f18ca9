"""Threads that complete futures, whose callbacks may wait for other calls of their group."""

from __future__ import annotations

import atexit
import os
import threading
import traceback
from collections import deque
from typing import Callable

_IDLE_S = 5.0  # a thread without work ends after it
_END_S = 5.0  # limit on the wait for callbacks as the interpreter ends


class Callers:
    """Runs each job in a thread that has nothing else to do, so that no job waits for another."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets all threads, which a forked process does not have."""
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], object]] = deque()
        self._idle = self._busy = 0

    def run(self, job: Callable[[], object]) -> None:
        with self._changed:
            self._jobs.append(job)
            self._busy += 1
            if self._idle >= len(self._jobs):
                self._changed.notify()
                return
        try:
            threading.Thread(target=self._loop, name="ccl callbacks", daemon=True).start()
        except RuntimeError:  # no thread begins as the interpreter ends
            self._run_first()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._jobs, _IDLE_S)
                self._idle -= 1
                if not self._jobs:
                    return
            self._run_first()

    def _run_first(self) -> None:
        with self._changed:
            if not self._jobs:  # another thread was faster
                return
            job = self._jobs.popleft()
        try:
            job()
        except BaseException:  # noqa: BLE001  nobody else would report it
            traceback.print_exc()
        del job
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()

    def drain(self, limit: float) -> bool:
        """Blocks until all jobs have ended. Returns False after `limit` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._busy == 0, limit)


callers = Callers()
os.register_at_fork(after_in_child=callers.reset)
# A thread that returns from a call of PyTorch as the interpreter ends aborts it.
atexit.register(lambda: callers.drain(_END_S))
