"""State of a running job: ``python -m ccl.ras``, ``ccl_ras``, or ``ncclras``, as NCCL's client is named.

Arguments are those of ``ccl_ras``: docs/reference/ccl_ras.md.
"""

from __future__ import annotations

import re
import sys
from typing import Iterator

from . import _tools
from ._errors import InvalidArgumentError, NetworkError, TimedOutError

__all__ = ["events", "main", "text"]


def text(*arguments: str, timeout: float | None = 60) -> str:
    """Returns what ``ccl_ras ARGUMENTS`` prints: the state of the job of a process of this host.

    Parameters
    ----------
    timeout : float, optional
        Limit in seconds. None: no limit.

    Raises
    ------
    InvalidArgumentError
        ``-m`` is given, whose events have no end: see `events`.
    NetworkError
        No process answers.
    TimedOutError
        The answer is not complete after `timeout`.

    Examples
    --------
    >>> import json, ccl.ras
    >>> state = json.loads(ccl.ras.text("-f", "json"))  # doctest: +SKIP
    """
    from subprocess import TimeoutExpired

    for one in arguments:
        name = one.partition("=")[0]
        if re.match(r"-[vDM]*m", one) or (len(name) > 3 and "--monitor".startswith(name)):
            raise InvalidArgumentError(
                f"{one} prints events until the job ends; iterate over ccl.ras.events()"
            )
    try:
        return _tools.output("ccl_ras", arguments, NetworkError, timeout)
    except TimeoutExpired:
        raise TimedOutError(
            f"ccl_ras has not ended within {timeout} s; give a larger timeout, or None"
        ) from None


def events(*arguments: str, groups: str = "all", timeout: float | None = None) -> Iterator[str]:
    """Yields the events of the job, one line for each, as ``ccl_ras -m=GROUPS`` prints them.

    The iteration ends with the process that answers, or after `timeout`. To end it earlier, close
    the iterator, or leave its loop.

    Parameters
    ----------
    *arguments : str
        Further arguments of ``ccl_ras``, such as ``"-p", "28029"``.
    groups : str
        ``"lifecycle"``, ``"trace"`` or ``"all"``.
    timeout : float, optional
        Seconds after which the iteration ends. Default: never.

    Raises
    ------
    NetworkError
        No process answers.

    Examples
    --------
    >>> import ccl.ras
    >>> for event in ccl.ras.events(timeout=3600):  # doctest: +SKIP
    ...     print(event)
    """
    return _tools.lines("ccl_ras", (*arguments, f"-m={groups}"), NetworkError, timeout)


def main() -> None:
    """Console command ``ccl_ras``, and ``ncclras``."""
    _tools.replace_by("ccl_ras", sys.argv[1:])


if __name__ == "__main__":
    main()
