"""Benchmark that times and checks every collective: ``python -m ccl.perf``, or ``ccl_perf``.

Arguments are those of ``ccl_perf``: docs/reference/ccl_perf.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import Any

from . import _tools

__all__ = ["main", "run"]


def run(*arguments: str, timeout: float | None = None) -> dict[str, Any]:
    """Runs the benchmark and returns its results.

    Parameters
    ----------
    *arguments : str
        As on the command line: ``run("all_reduce", "--ranks", "4")``.
    timeout : float, optional
        Limit in seconds.

    Returns
    -------
    dict
        What ``--json`` writes: the machine, the command, and ``"rows"`` with a dictionary for each
        measurement. ``time_us`` is the time of a call in us; `_gbs` are GB/s.

    Raises
    ------
    subprocess.CalledProcessError
        It failed; `stderr` says why.
    subprocess.TimeoutExpired
        It has not ended within `timeout`, and was killed.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [_tools.path("ccl_perf"), *arguments, "--json", file.name],
            check=True, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        results: dict[str, Any] = json.load(file)
        return results


def main() -> None:
    """Console command ``ccl_perf``."""
    _tools.replace_by("ccl_perf", sys.argv[1:])


if __name__ == "__main__":
    main()
