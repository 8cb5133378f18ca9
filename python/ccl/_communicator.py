"""Communicators: membership of this process, as a rank, in a group of ranks."""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, Iterable, NoReturn, Sequence

from . import _core, _options
from ._buffers import CPU
from ._calls import Calls
from ._checks import integer
from ._errors import InvalidArgumentError, text_of, utf8
from ._options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack  # type checkers have it; the package does not need it

__all__ = ["Communicator", "UniqueId"]


class UniqueId:
    """Address at which the ranks of one communicator connect, and their shared secret.

    One rank calls `create` and sends `bytes` to the others by any private channel. An id serves one
    communicator.

    Parameters
    ----------
    data : bytes
        The 128 bytes of `UniqueId.bytes`.
    """

    __slots__ = ("bytes",)

    def __init__(self, data: bytes) -> None:
        try:
            held = bytes(memoryview(data))
        except TypeError:
            raise TypeError(
                f"an id is bytes, and a {type(data).__name__} was given; pass UniqueId.bytes as it is"
            ) from None
        if len(held) != 128:
            raise InvalidArgumentError(
                f"an id has 128 bytes ({len(held)} were given); pass UniqueId.bytes as it is"
            )
        self.bytes: bytes = held

    @classmethod
    def create(cls) -> UniqueId:
        """Creates an id. This process helps the ranks connect, in a background thread."""
        return cls(_core.create_unique_id())

    @classmethod
    def at(cls, address: str, key: str, *, rank: int) -> UniqueId:
        """Returns the id that every rank computes alike, without a channel between them.

        Parameters
        ----------
        address : str
            ``"host:port"`` of rank 0.
        key : str
            Text that only the job's ranks know. Without ``CCL_SECRET`` the connections are as
            secret as this text.
        rank : int
            This rank. Rank 0 starts to listen at the address.
        """
        for name, value in {"address": address, "key": key}.items():
            if not isinstance(value, str):
                raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; give a string")
        rank = integer(rank, "rank")
        made = cls(_core.unique_id_at(address, key))
        if rank == 0:
            _core.start_root(made.bytes, 0)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UniqueId) and self.bytes == other.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)

    def __repr__(self) -> str:
        return "UniqueId(...)"  # it holds a secret


class Communicator(Calls):
    """Membership of this process, as one rank, in a group of ranks.

    All ranks create it, and make the same calls on it in the same order. Its calls release the
    interpreter's lock while they wait. A call from another thread, such as `abort`, is then
    possible. Ctrl-C in a call of the main thread aborts the communicator and raises
    KeyboardInterrupt; another handler of the signal runs after the call.

    Arrays are those of NumPy, anything with the buffer protocol, ``__dlpack__`` (PyTorch, JAX) or
    ``__cuda_array_interface__`` (CuPy, Numba). They must be contiguous. Element types are int8 to
    int64, uint8 to uint64, bool (only moved), float16, bfloat16, float32, float64 and the two
    float8 types. ccl borrows an array for the time of the call, or until the stream has run it, and
    owns none. A `Stream` keeps its arrays, and PyTorch keeps tensors that a CUDA stream uses; keep
    other arrays of GPUs, `out` too, until the CUDA stream has run the call.

    Parameters
    ----------
    id : UniqueId or sequence of UniqueId
        The id that all ranks hold. Several speed up the creation of large jobs.
    rank, ranks : int
        This rank, from 0 to ``ranks - 1``, and the number of ranks.
    device : int, optional
        CUDA device of this rank. None: data is in CPU memory.
    timeout : float, optional
        Seconds that an operation may wait without progress; 0: no limit. Default: ``CCL_TIMEOUT``,
        or no limit.
    init_timeout : float, optional
        Seconds that a creation may wait for a rank. Default: ``CCL_INIT_TIMEOUT``, or 60.
    check : bool, optional
        Compares the arguments of each call between ranks. Default: ``CCL_CHECK``.
    memory_budget : int, optional
        Limit in bytes on the memory of connections.
    channels : int, optional
        Channels of every composition.
    name : str
        Name in messages.
    tune_file : str
        File of measurements, as ``ccl_perf --tune`` writes it.

    Raises
    ------
    TimedOutError
        A rank is missing after `init_timeout`.
    MismatchError
        Ranks gave different options.

    Examples
    --------
    >>> import ccl, numpy
    >>> with ccl.Communicator.from_env() as comm:  # alone, without a launcher
    ...     print(comm.all_reduce(numpy.ones(3, "float32")))
    [1. 1. 1.]
    """

    _finalized = False

    def __init__(
        self,
        id: UniqueId | Sequence[UniqueId],
        rank: int,
        ranks: int,
        *,
        device: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        given = _options.complete(options)
        rank, ranks = integer(rank, "rank"), integer(ranks, "ranks")
        if not isinstance(id, (UniqueId, Iterable)):
            raise TypeError(f"id is {id!r}, a {type(id).__name__}; give a ccl.UniqueId, or several")
        ids = [id] if isinstance(id, UniqueId) else list(id)
        for one in ids:
            if not isinstance(one, UniqueId):
                raise TypeError(
                    f"id is, or has, a {type(one).__name__}; give a ccl.UniqueId, or several "
                    "(UniqueId(data) makes one from its bytes)"
                )
        if not ids:
            raise InvalidArgumentError(
                "a communicator needs the id that all ranks hold, and none was given; pass one of "
                "UniqueId.create"
            )
        if device is None:
            made = _options.for_engine(given)
            self._core: Any = _core.Core.create([one.bytes for one in ids], rank, ranks, made)
            self._device = CPU
        else:
            if not hasattr(device, "__index__"):
                raise TypeError(
                    f"device is {device!r}, a {type(device).__name__}; give the number of a CUDA device, "
                    "or None"
                )
            from ._gpu import GpuCore

            device = operator.index(device)
            if device < 0:
                raise InvalidArgumentError(
                    f"device is {device}; give the number of a CUDA device, from 0, or None for the CPU"
                )
            self._core = GpuCore.create([one.bytes for one in ids], rank, ranks, device, given)
            self._device = device
        self._given = given
        _live.add(self)

    @classmethod
    def _wrap(cls, core: Any, device: int, given: _options.Given) -> Communicator:
        made = cls.__new__(cls)
        made._core, made._device, made._given = core, device, given
        _live.add(made)
        return made

    @classmethod
    def from_env(cls, *, device: int | str | None = None, **options: Unpack[Options]) -> Communicator:
        """Creates the rank that the launcher describes: torchrun, mpirun, srun, or none.

        Without a launcher it is a rank alone. Options are those of the class.

        Parameters
        ----------
        device : int, "local" or None
            ``"local"``: the CUDA device with the number of this rank on its host.
        """
        given = _options.complete(options)
        if device is None:
            return cls._wrap(_core.Core.from_env(_options.for_engine(given)), CPU, given)
        if isinstance(device, str) and device != "local":
            raise InvalidArgumentError(
                f'there is no device "{device}"; take a number or "local", or None for a CPU rank'
            )
        data, rank, ranks, local, _ = _core.launched()
        chosen = local if isinstance(device, str) else device
        return cls(UniqueId(data), rank, ranks, device=chosen, **options)

    @classmethod
    def create_all(cls, ranks: int, **options: Unpack[Options]) -> list[Communicator]:
        """Creates all ranks in this process, on the CPU. Item i is rank i; use each in a thread.

        The interpreter's lock is free while a rank waits, so threads make progress.
        """
        given = _options.complete(options)
        made = _core.Core.create_all(integer(ranks, "ranks"), _options.for_engine(given))
        return [cls._wrap(core, CPU, given) for core in made]

    # What it is.

    @property
    def device(self) -> int | None:
        """CUDA device, or None on the CPU."""
        return None if self._device == CPU else self._device

    @property
    def name(self) -> str:
        """Name in messages."""
        return str(self._given["name"])

    @property
    def memory_used(self) -> int:
        """Bytes of connections and scratch memory that this rank has allocated."""
        return int(self._core.memory_used)

    def host(self, rank: int) -> str:
        """Returns the name of the host of `rank`."""
        self._check_rank(rank, "rank")
        return str(self._core.host(rank))

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        place = "cpu" if self._device == CPU else f"cuda:{self._device}"
        return f"<ccl.Communicator rank {self.rank} of {self.ranks}, {place}{name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Communicator belongs to its process and does not pickle; send UniqueId.bytes")

    def __copy__(self) -> Communicator:
        return self  # a handle

    # Life.

    def split(
        self, color: int | None, key: int | None = None, **options: Unpack[Options]
    ) -> Communicator | None:
        """Creates a communicator of the ranks with the same color. Collective.

        Parameters
        ----------
        color : int or None
            Ranks with the same color form a communicator. None or a negative number: this rank gets
            none.
        key : int, optional
            Ranks are ordered by key, then by their rank here. Default: the rank here.

        Returns
        -------
        Communicator or None
        """
        given = self._given | _options.known(options)
        part = -1 if color is None else integer(color, "color")
        order = self.rank if key is None else integer(key, "key")
        made = self._core.split(part, order, self._taken(given))
        return None if made is None else self._wrap(made, self._device, given)

    def shrink(
        self, excluded: Sequence[int], *, abort_parent: bool = False, **options: Unpack[Options]
    ) -> Communicator:
        """Creates a communicator of all ranks but the excluded ones, which do not call it.

        It works after a failure too, so that the remaining ranks continue.

        Parameters
        ----------
        excluded : sequence of int
            Equal on all remaining ranks.
        abort_parent : bool
            Ends operations of this communicator that wait for an excluded rank.
        """
        given = self._given | _options.known(options)
        if not isinstance(excluded, Iterable):
            raise TypeError(
                f"excluded is {excluded!r}, a {type(excluded).__name__}; give a sequence of ranks"
            )
        others = [integer(one, "an excluded rank") for one in excluded]
        made = self._core.shrink(others, bool(abort_parent), self._taken(given))
        return self._wrap(made, self._device, given)

    def barrier(self) -> None:
        """Blocks until all ranks have called it."""
        self._core.barrier()

    def finalize(self) -> None:
        """Ends the communicator: waits for this rank's calls and for all ranks. Collective."""
        self._finalized = True
        self._core.finalize()

    def abort(self, why: str = "abort was called") -> None:
        """Ends all running and waiting operations on all ranks. Waits for no rank.

        Any thread may call it. Calls that are ended raise `AbortedError`.
        """
        self._core.abort(utf8(str(why)))

    def check_status(self) -> None:
        """Raises the first failure of the communicator, if it has failed. Waits for no rank."""
        self._core.status()

    def report(self) -> str:
        """Returns the state of all ranks, and the rank that is behind. Takes at most 2 s."""
        return str(self._core.report())

    def dump(self, folder: str | os.PathLike[str]) -> None:
        """Writes the operations that this rank remembers to files in `folder`, which exists.

        `ccl_report FOLDER` says who was behind, and PyTorch's `torchfrtrace` reads the files, too.
        With `CCL_DUMP_DIR` a rank also writes them when its communicator fails.
        """
        self._core.dump(os.fspath(folder))

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Finalizes, unless the block has; or aborts, if the block ended with an exception."""
        if kind is None:
            if not self._finalized:
                self.finalize()
        else:
            self.abort(f"rank {self.rank} left its block with {kind.__name__}: {text_of(error)}")

    def _taken(self, given: _options.Given) -> Any:
        """Returns the options as the engine takes them."""
        return _options.for_engine(given) if self._device == CPU else given


_live: weakref.WeakSet[Communicator] = weakref.WeakSet()


@atexit.register
def _begin_exit() -> None:
    """Makes the end of a communicator a departure from now on, or aborts all after an exception."""
    error = getattr(sys, "last_value", None)  # that the process ends with
    if error is not None and not hasattr(sys, "ps1"):
        for comm in list(_live):
            with contextlib.suppress(Exception):  # it may be in creation, or its GPU's handle gone
                if comm._finalized:
                    continue
                comm.abort(f"rank {comm.rank} ended with {type(error).__name__}: {text_of(error)}")
    _core.begin_exit()
