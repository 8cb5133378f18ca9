"""Versions of ccl and of what it works with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TextIO

from . import _build, _core, _loaded, nccl
from ._errors import NotSupportedError

__all__ = ["show_versions", "versions"]


def _driver() -> str | None:
    import ctypes

    try:
        number = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) != 0:
            return None
    except (AttributeError, OSError):
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _installed(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, Any]:
    """Returns what `show_versions` prints, as a dictionary that JSON can hold."""
    import platform

    try:
        library: str | None = str(nccl.library())
    except NotSupportedError:
        library = None
    mapped = _loaded.paths()
    return {
        "ccl": _core.version,
        "folder": str(Path(__file__).parent),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "compiler": _build.compiler,
        "cuda": _build.cuda_version if _build.cuda else None,
        "cuda driver": _driver(),
        "reductions on CPU ranks": _core.reduced_types,
        "libnccl of ccl": library,
        "loaded libnccl": {path: _loaded.version(path) for path in mapped},
        "packages": {
            name: found
            for name in ("numpy", "ml_dtypes", "torch", "cupy", "jax")
            if (found := _installed(name)) is not None
        },
    }


def show_versions(*, as_json: bool = False, file: TextIO | None = None) -> None:
    """Prints versions: of ccl, Python, CUDA, and of every libnccl that this process has loaded.

    Two loaded libraries are a mistake, since a framework and ccl then use different ones. The
    output says so.

    Parameters
    ----------
    as_json : bool
        Prints a JSON object.
    file : file, optional
        Default: standard output.
    """
    found = versions()
    out = file or sys.stdout
    if as_json:
        import json

        print(json.dumps(found, indent=2), file=out)
        return
    for key, value in found.items():
        if key == "loaded libnccl":
            _show_loaded(value, out)
        elif key == "packages":
            for name, number in value.items():
                print(f"{name}: {number}", file=out)
        else:
            print(f"{key}: {'none' if value is None else value}", file=out)


def _show_loaded(loaded: dict[str, str | None], out: TextIO) -> None:
    if not loaded:
        print("loaded libnccl: none", file=out)
    for path, number in loaded.items():
        print(f"loaded libnccl: {path} (version {number or 'unknown'})", file=out)
    if len(loaded) > 1:
        print(
            f"warning: {len(loaded)} libraries named libnccl are loaded; call ccl.enable_nccl() "
            "before any framework is imported, or start the program with ccl_run",
            file=out,
        )
