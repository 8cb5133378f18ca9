"""State of a running job: ``python -m ccl.ras``, ``ccl_ras``, or ``ncclras``, as NCCL's client is named.

Arguments are those of ``ccl_ras``: docs/reference/ccl_ras.md.
"""

from __future__ import annotations

import sys

from . import _tools
from ._errors import NetworkError

__all__ = ["main", "text"]


def text(*arguments: str) -> str:
    """Returns what ``ccl_ras ARGUMENTS`` prints: the state of the job of a process of this host.

    Raises
    ------
    NetworkError
        No process answers.

    Examples
    --------
    >>> import json, ccl.ras
    >>> state = json.loads(ccl.ras.text("-f", "json"))  # doctest: +SKIP
    """
    return _tools.output("ccl_ras", arguments, NetworkError)


def main() -> None:
    """Console command ``ccl_ras``, and ``ncclras``."""
    _tools.replace_by("ccl_ras", sys.argv[1:])


if __name__ == "__main__":
    main()
