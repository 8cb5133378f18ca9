"""Topology of the machine: ``python -m ccl.topo``, or ``ccl_topo``.

Arguments are those of ``ccl_topo``: docs/reference/ccl_topo.md.
"""

from __future__ import annotations

import sys

from . import _tools
from ._errors import InvalidArgumentError

__all__ = ["main", "show", "text"]


def text(command: str = "show", *arguments: str) -> str:
    """Returns what ``ccl_topo COMMAND ARGUMENTS`` prints.

    Examples
    --------
    >>> import ccl.topo
    >>> picture = ccl.topo.text("show", "--format", "svg")
    """
    return _tools.output("ccl_topo", (command, *arguments), InvalidArgumentError)


def show(*arguments: str) -> None:
    """Prints the machine: CPUs, GPUs, NICs and what connects them."""
    print(text("show", *arguments), end="")


def main() -> None:
    """Console command ``ccl_topo``."""
    _tools.replace_by("ccl_topo", sys.argv[1:])


if __name__ == "__main__":
    main()
