"""Programs that the wheel holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, NoReturn

_bin = Path(__file__).parent / "bin"


def path(name: str) -> Path:
    """Returns the path of a program."""
    return _bin / name


def output(
    name: str,
    arguments: tuple[str, ...],
    failure: type[Exception],
    timeout: float | None = None,
) -> str:
    """Returns what a program prints; raises `failure` with its message if it fails."""
    import subprocess

    # Names that a program gave its communicators may be no UTF-8.
    done = subprocess.run(
        [path(name), *arguments], capture_output=True, text=True, errors="replace", timeout=timeout
    )
    if done.returncode != 0:
        raise failure(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def lines(
    name: str,
    arguments: tuple[str, ...],
    failure: type[Exception],
    timeout: float | None = None,
) -> Iterator[str]:
    """Yields the lines that a program prints. Ends the program with the iteration, or at `timeout`.

    Raises `failure` with the program's message if it fails.
    """
    import subprocess
    import threading

    program = subprocess.Popen(
        [path(name), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", bufsize=1,
    )  # fmt: skip
    ended = threading.Event()

    def end() -> None:
        ended.set()
        program.terminate()

    limit = None if timeout is None else threading.Timer(timeout, end)
    try:
        if limit is not None:
            limit.daemon = True
            limit.start()
        assert program.stdout is not None and program.stderr is not None
        for line in program.stdout:
            yield line.rstrip("\n")
        said = program.stderr.read().strip()
        if program.wait() != 0 and not ended.is_set():
            raise failure(said)
    finally:
        if limit is not None:
            limit.cancel()
        program.kill()
        program.wait()
        for pipe in (program.stdout, program.stderr):
            if pipe is not None:
                pipe.close()


def replace_by(name: str, arguments: list[str]) -> NoReturn:
    """Runs a program in place of this process."""
    os.execv(path(name), [name, *arguments])
