"""Calls of the GPU library that wait for other ranks, so that Ctrl-C ends them."""

from __future__ import annotations

import threading
from typing import Any, Callable

_PERIOD = 0.1  # seconds between two looks for a signal
_ENDING = 5.0  # seconds for a call to return once it is ended


def blocking(call: Callable[[], Any], end: Callable[[], Any] | None = None) -> Any:
    """Runs `call`, and returns its value.

    In the main thread, a thread of its own runs it, because handlers of signals run only while the
    main thread is in Python. If a handler raises, as that of Ctrl-C does, `end` ends the call, and
    the exception goes on. Without `end` the call is left to its own limit.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  raised below
            failures.append(error)

    thread = threading.Thread(target=run, name="ccl call", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_PERIOD)
    except BaseException:
        if end is not None:
            end()
            thread.join(_ENDING)
        raise
    if failures:
        raise failures[0]
    return results[0]
