"""Programs that the wheel holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

_bin = Path(__file__).parent / "bin"


def path(name: str) -> Path:
    """Returns the path of a program."""
    return _bin / name


def output(name: str, arguments: tuple[str, ...], failure: type[Exception]) -> str:
    """Returns what a program prints; raises `failure` with its message if it fails."""
    import subprocess

    # Names that a program gave its communicators may be no UTF-8.
    done = subprocess.run([path(name), *arguments], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise failure(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def replace_by(name: str, arguments: list[str]) -> NoReturn:
    """Runs a program in place of this process."""
    os.execv(path(name), [name, *arguments])
