"""Patience of a rank that ends its group: how long it waits for calls that need other ranks.

A rank that has ended the group makes no call of it any more. Two numbers in the group's store say
how many ranks have begun to end it, and how many have no calls left.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

END_S = 10.0  # limit on calls without progress, once a rank has left the group
_ALL_END_S = 60.0  # the same, once all ranks are ending it
_LOOK_S = 0.05
_BEGUN, _LEFT = "ccl/ending", "ccl/ended"


def forget(store: Any) -> None:
    """Clears the numbers, which a group that used the store before may have left."""
    for key in (_BEGUN, _LEFT):
        delete(store, key)


def delete(store: Any, key: str) -> None:
    try:
        store.delete_key(key)
    except RuntimeError:  # a store that deletes nothing
        pass


class Ending:
    """End of a group on one rank."""

    def __init__(self, store: Any, ranks: int, *, at_exit: bool) -> None:
        self._store, self._ranks, self._at_exit = store, ranks, at_exit
        self._count(_BEGUN, 1)

    def _count(self, key: str, more: int = 0) -> int | None:
        """Adds to a number, and returns it. Returns None if the store's process is gone."""
        try:
            return int(self._store.add(key, more))
        except RuntimeError:
            return None

    def no_calls_left(self) -> None:
        self._count(_LEFT, 1)

    def _may_end(self, idle_s: float) -> bool:
        """True if calls may still end, so long after the last one did."""
        if idle_s < END_S:
            return True
        if self._at_exit or self._count(_LEFT) != 0:
            return False
        return self._count(_BEGUN) != self._ranks or idle_s < _ALL_END_S

    def drain(self, left: Callable[[], int]) -> bool:
        """Blocks until `left()`, the number of calls that have not ended, is 0.

        Returns False once no call ends any more, since ranks that they need have left the group. A
        rank that is only late is waited for, except at the exit of the process.
        """
        before, since, asked = left(), time.monotonic(), 0.0
        while before:
            time.sleep(0.0002 if time.monotonic() - since < _LOOK_S else _LOOK_S)
            now, count = time.monotonic(), left()
            if count != before:
                before, since = count, now
            elif now - asked > 1:  # the store is not asked all the time
                asked = now
                if not self._may_end(now - since):
                    return False
        return True


def bounded(end: Callable[[], None], give_up: Callable[[], None], limit: float) -> None:
    """Runs `end` in a thread, and calls `give_up`, which ends it, after `limit` seconds."""
    thread = threading.Thread(target=end, name="ccl end", daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        give_up()
        thread.join(limit)
