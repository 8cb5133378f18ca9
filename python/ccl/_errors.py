"""Exceptions of the package: one class for each kind of error of the C++ library."""

from __future__ import annotations

from typing import Any

__all__ = [
    "AbortedError",
    "BadSettingError",
    "BudgetError",
    "CompileError",
    "CudaError",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "InvalidUsageError",
    "MismatchError",
    "NetworkError",
    "NotSupportedError",
    "OutOfMemoryError",
    "PeerLostError",
    "RefusedError",
    "SystemCallError",
    "TimedOutError",
    "TransportError",
]


class Error(RuntimeError):
    """Failure of a call of ccl. `str` of it is the C++ message: problem, reason and remedy.

    Attributes
    ----------
    code : str
        Name of the kind of error, as in the C++ library's `Errc`: ``"timed_out"``.
    rank : int
        Rank that reports the error; -1 if it is not known.
    peer : int
        Rank at fault, or at the other end of the connection; -1 if there is none.
    os_code : int
        ``errno``, ``cudaError_t`` or ``ibv`` status, depending on `code`; 0 if there is none.
    host : str
        Host of `rank`; empty if it is not known.
    transport : str
        Transport at fault; empty if there is none.
    """

    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        rank: int = -1,
        peer: int = -1,
        os_code: int = 0,
        host: str = "",
        transport: str = "",
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.peer = peer
        self.os_code = os_code
        self.host = host
        self.transport = transport

    def __reduce__(self) -> tuple[Any, ...]:  # pickles, as multiprocessing sends exceptions
        return (_rebuild, (type(self), self.args), self.__dict__)


def _rebuild(kind: type[Error], arguments: tuple[Any, ...]) -> Error:
    """Makes an error without `__init__`, to which a subclass may give other parameters."""
    made: Error = (OSError if issubclass(kind, OSError) else RuntimeError).__new__(kind)
    made.args = arguments
    return made


class InvalidArgumentError(Error, ValueError):
    """A value that is never valid: a bad root, sizes that do not fit, a read-only output."""

    code = "invalid_argument"


class CompileError(InvalidArgumentError):
    """A `Functor` does not compile or load. The message has the output of compiler or loader."""


class InvalidUsageError(Error):
    """A call at the wrong time, such as after `Communicator.finalize`."""

    code = "invalid_usage"


class MismatchError(Error, ValueError):
    """Ranks disagree on an operation, a count, a type, a root or a size."""

    code = "mismatch"


class BadSettingError(Error, ValueError):
    """A setting (``CCL_...``) is unknown or out of range."""

    code = "bad_setting"


class TransportError(Error):
    """No transport connects two ranks."""

    code = "no_transport"


class OutOfMemoryError(Error, MemoryError):
    """An allocation failed."""

    code = "out_of_memory"


class BudgetError(Error):
    """The communicator's memory budget is too small."""

    code = "over_budget"


class SystemCallError(Error):
    """A system call failed; `os_code` is ``errno``."""

    code = "system"


class CudaError(Error):
    """A CUDA call failed; `os_code` is the ``cudaError_t`` or ``CUresult``."""

    code = "cuda"


class NetworkError(Error, ConnectionError):
    """A connection failed or was refused."""

    code = "network"


class RefusedError(Error, PermissionError):
    """A connection came from outside of the communicator, or its secret was wrong."""

    code = "refused"


class TimedOutError(Error, TimeoutError):
    """There was no progress within the deadline. `peer` is the late rank, if it is known."""

    code = "timed_out"


class PeerLostError(Error, ConnectionError):
    """Rank `peer` died or closed its connections."""

    code = "peer_lost"


class AbortedError(Error):
    """A rank called `Communicator.abort`."""

    code = "aborted"


class NotSupportedError(Error, NotImplementedError):
    """The machine, or this build of the package, does not support the request."""

    code = "not_supported"


class InternalError(Error):
    """A bug in ccl."""

    code = "internal"


_by_code = {
    kind.code: kind for kind in Error.__subclasses__()
} | {"no_device_code": NotSupportedError, "overflow": InvalidArgumentError,
     "not_a_number": InvalidArgumentError}


def create(
    code: str, message: str, rank: int, peer: int, os_code: int, host: str, transport: str
) -> Error:
    """Returns the exception for an error of the C++ library."""
    made = _by_code.get(code, InternalError)(
        message, rank=rank, peer=peer, os_code=os_code, host=host, transport=transport
    )
    made.code = code
    return made


def text_of(error: BaseException) -> str:
    """Returns the text of an error of the program, also if its class fails to make one."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001  of the program
        return f"without a text ({type(failure).__name__} in __str__)"


def utf8(text: str) -> str:
    """Returns `text` without the lone surrogates that UTF-8 lacks, as those of odd file names."""
    return text.encode(errors="backslashreplace").decode()
