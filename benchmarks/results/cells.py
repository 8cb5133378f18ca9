"""Text of the tables of tables.py: cells, lines, and the note of where the numbers are from."""

import re
import textwrap
from collections.abc import Iterable

import read
from read import Json, Suite


def size(bytes_: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ % scale == 0 and bytes_ >= scale:
            return f"{bytes_ // scale} {unit}"
    return f"{bytes_:,}" if bytes_ >= 1024 else f"{bytes_} B"


def us(value: float) -> str:
    """Three digits: 2.09, 22.6, 287."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}" if value > 0 else ""


def pair(case: Json | None) -> str:
    if case is None:
        return ""
    rival = us(read.best_rival(case)[1])
    return us(read.ccl_us(case)) + (f" ({rival})" if rival else "")


def lines(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    out += ["| " + " | ".join(row) + " |" for row in rows]
    return re.sub(r"  +", " ", "\n".join(out)) + "\n"


def megabytes(bytes_: int) -> str:
    return f"{bytes_ / 1e6:.1f} MB"


def command_of(suite: Suite) -> str:
    return re.sub(r" --(json|timeout|limit) \S+", "", suite.run["command"])


def source(machine: str, suites: list[Suite], command: str = "") -> str:
    """Machine, NCCL's version, dates, commits and the command of a table."""
    command = command or command_of(suites[0])
    runs = [suite.run for suite in suites]
    facts = [f"{machine[-1]} H200"]
    facts += sorted({run["rival"] for run in runs if run.get("rival")})
    facts += sorted({run["date"][:10] for run in runs if run.get("date")})
    facts.append("commit " + ", ".join(sorted({run["commit"] for run in runs})))
    folded = "\n".join(
        textwrap.fill(
            line, 98, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        ).replace("\n", " \\\n")
        for line in command.splitlines()
    )
    return f"\n{', '.join(facts)}. To repeat:\n\n```sh\n{folded}\n```\n"
