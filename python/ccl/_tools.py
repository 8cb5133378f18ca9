"""Programs that the wheel holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

_bin = Path(__file__).parent / "bin"


def path(name: str) -> Path:
    """Returns the path of a program."""
    return _bin / name


def replace_by(name: str, arguments: list[str]) -> NoReturn:
    """Runs a program in place of this process."""
    os.execv(path(name), [name, *arguments])
