"""ccl's ``libnccl.so.2`` in place of NVIDIA's, for the frameworks of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from . import _loaded
from ._errors import InvalidUsageError, NotSupportedError

__all__ = ["enable", "is_enabled", "library"]

_library = Path(__file__).parent / "lib" / "ccl" / "libnccl.so.2"
_handle: Any = None  # ctypes.CDLL, once loaded


def library() -> Path:
    """Returns the path of the library, for ``LD_PRELOAD`` or ``VLLM_NCCL_SO_PATH``.

    ``CCL_NCCL_LIBRARY`` names another file in its place.

    Raises
    ------
    NotSupportedError
        This wheel was built without it, or the named file does not exist.
    """
    named = os.environ.get("CCL_NCCL_LIBRARY")
    path = Path(named).absolute() if named else _library  # a name alone is searched for elsewhere
    if path.exists():
        return path
    if named:
        reason = f"CCL_NCCL_LIBRARY names {path}, which does not exist"
        remedy = "unset it, or name the library of this version"
    else:
        reason = "this wheel was built without CUDA"
        remedy = "build the wheel with CMAKE_ARGS='-DCCL_ENABLE_CUDA=ON'"
    raise NotSupportedError(f"there is no libnccl.so.2 of ccl ({reason}); {remedy}")


def _load(*, for_all: bool = False) -> Any:
    """Returns the library's `ctypes.CDLL`. `for_all`: its symbols serve libraries that are loaded later."""
    import ctypes

    path = library()
    try:
        loaded = ctypes.CDLL(str(path), mode=os.RTLD_NOW)
    except OSError as error:
        reason = str(error)
    else:
        if _loaded.is_ccl(str(path)):
            return ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_GLOBAL) if for_all else loaded
        reason = "it does not say that it is of ccl"
    if path == _library:
        raise NotSupportedError(f"{path} does not load ({reason}); install what it needs, or ccl anew")
    raise NotSupportedError(
        f"CCL_NCCL_LIBRARY names {path}, which is not the libnccl.so.2 of ccl ({reason}); unset it, or "
        "name the library of this version"
    )


def is_enabled() -> bool:
    """True if this process has ccl's library and no other libnccl."""
    mapped = _loaded.paths()
    try:
        return bool(mapped) and all(
            os.path.samefile(path, library()) and _loaded.is_ccl(path) for path in mapped
        )
    except (NotSupportedError, FileNotFoundError):
        return False


def enable() -> Path:
    """Loads ccl's ``libnccl.so.2``, so that frameworks imported later take it.

    Call it first: before ``import torch``, ``import cupy`` or the first use of JAX. A library that
    is asked for by its name ``libnccl.so.2`` is then the one that is loaded. One that is asked for
    by another path is not replaced, and neither is one that is linked into a framework.

    Returns
    -------
    pathlib.Path
        The library.

    Raises
    ------
    InvalidUsageError
        This process has loaded another libnccl; the message names it. Call `enable` earlier, or
        start the program with ``ccl_run``.
    NotSupportedError
        This wheel was built without the library, or ``CCL_NCCL_LIBRARY`` names a file that is none of
        ccl.
    """
    global _handle
    path = library()
    others = [other for other in _loaded.paths() if not _same(other, path)]
    if others:
        raise InvalidUsageError(
            f"another libnccl is loaded already ({', '.join(others)}); call ccl.enable_nccl() "
            "before the framework is imported, or start the program with ccl_run"
        )
    if _handle is None:
        _handle = _load(for_all=True)
    return path


def _same(one: str, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError:  # replaced since it was loaded
        return False


def main() -> int:
    """Console command ``ccl_run PROGRAM ...``: runs a program with ccl's library preloaded."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: ccl_run PROGRAM [ARGUMENT ...]\n\nRuns PROGRAM with ccl's libnccl.so.2.")
        return 0 if arguments else 2
    try:
        path = library()
    except NotSupportedError as error:
        print(f"ccl_run: {error}", file=sys.stderr)
        return 1
    if any(character in ":" or character.isspace() for character in str(path)):
        print(
            f"ccl_run: {path}: LD_PRELOAD cannot name a path with a space or a colon; make a link to "
            "the library without them, and name it by CCL_NCCL_LIBRARY",
            file=sys.stderr,
        )
        return 1
    loaded_before = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = f"{path}:{loaded_before}" if loaded_before else str(path)
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        print(f"ccl_run: {arguments[0]}: {error.strerror}", file=sys.stderr)
        return 127
