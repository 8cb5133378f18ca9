"""Collective communication between GPUs and between CPU processes.

A `Communicator` is this process's membership, as a rank, in a group of ranks::

    import ccl, numpy

    with ccl.Communicator.from_env() as comm:  # torchrun, mpirun, srun, or alone
        data = numpy.full(1000, comm.rank + 1, "float32")
        comm.all_reduce(data, out=data)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import nccl
from ._communicator import Communicator, UniqueId
from ._core import version as __version__
from ._errors import (
    AbortedError,
    BadSettingError,
    BudgetError,
    CompileError,
    CudaError,
    Error,
    InternalError,
    InvalidArgumentError,
    InvalidUsageError,
    MismatchError,
    NetworkError,
    NotSupportedError,
    OutOfMemoryError,
    PeerLostError,
    RefusedError,
    SystemCallError,
    TimedOutError,
    TransportError,
)
from ._functor import Functor
from ._stream import Stream
from ._versions import show_versions, versions
from .nccl import enable as enable_nccl

if TYPE_CHECKING:
    from . import ras, report, topo
else:

    def __getattr__(name: str) -> Any:
        """Imports a module of a program when it is first used, so that ``python -m`` runs it alone."""
        if name not in ("ras", "report", "topo"):
            raise AttributeError(f"module 'ccl' has no attribute {name!r}")
        import importlib

        return importlib.import_module(f"ccl.{name}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "AbortedError",
    "BadSettingError",
    "BudgetError",
    "Communicator",
    "CompileError",
    "CudaError",
    "Error",
    "Functor",
    "InternalError",
    "InvalidArgumentError",
    "InvalidUsageError",
    "MismatchError",
    "NetworkError",
    "NotSupportedError",
    "OutOfMemoryError",
    "PeerLostError",
    "RefusedError",
    "Stream",
    "SystemCallError",
    "TimedOutError",
    "TransportError",
    "UniqueId",
    "__version__",
    "cmake_prefix",
    "enable_nccl",
    "include_dir",
    "nccl",
    "ras",
    "report",
    "show_versions",
    "topo",
    "versions",
]


def cmake_prefix() -> Path:
    """Returns the folder for ``CMAKE_PREFIX_PATH``, in which ``find_package(ccl)`` finds ccl."""
    return Path(__file__).parent


def include_dir() -> Path:
    """Returns the folder of the C++ headers."""
    return Path(__file__).parent / "include"
