"""Communicators: membership of this process, as a rank, in a group of ranks."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Sequence

from . import _buffers, _core
from ._buffers import CPU, Buffer
from ._errors import InvalidArgumentError, InvalidUsageError, NotSupportedError

__all__ = ["Communicator", "Stream", "UniqueId"]

_NO_LIMIT = 1e9  # seconds; a longer limit is none
_REDUCTIONS = ("sum", "prod", "min", "max", "avg")


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
        if len(data) != 128:
            raise InvalidArgumentError(
                f"an id has 128 bytes ({len(data)} were given); pass UniqueId.bytes as it is"
            )
        self.bytes: bytes = bytes(data)

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


class Stream:
    """Ordered queue of calls on CPU ranks, with a thread that runs them.

    A collective that is given a stream returns at once. It runs when all calls queued before it
    have run. The stream keeps the arrays of its calls until `synchronize`; they must not be changed
    meanwhile.
    """

    def __init__(self) -> None:
        self._queue = _core.HostStream()
        self._kept: list[Any] = []

    def synchronize(self, timeout: float | None = None) -> None:
        """Blocks until all queued calls have run, and raises the first failure among them.

        Parameters
        ----------
        timeout : float, optional
            Limit in seconds. Default, 0 or infinity: none.

        Raises
        ------
        TimedOutError
            Calls have not run within `timeout`. They stay queued.
        """
        limit = 0.0 if timeout is None else float(timeout)
        if math.isnan(limit) or limit < 0:
            raise InvalidArgumentError(
                f"timeout is {limit}; give seconds, or None to wait without limit"
            )
        kept = len(self._kept)
        try:
            self._queue.synchronize(0.0 if limit > _NO_LIMIT else limit)
        except TimeoutError:
            raise
        except Exception:
            del self._kept[:kept]
            raise
        del self._kept[:kept]

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.synchronize()


def _options(given: dict) -> _core.Options:
    options = _core.Options()
    options.timeout_s = given["timeout"]
    options.init_timeout_s = given["init_timeout"]
    options.check = given["check"]
    options.memory_budget_bytes = given["memory_budget"]
    options.channels = given["channels"]
    options.name = given["name"]
    options.tune_file = given["tune_file"]
    return options


_DEFAULTS = {
    "timeout": None,
    "init_timeout": None,
    "check": None,
    "memory_budget": None,
    "channels": None,
    "name": "",
    "tune_file": "",
}


def _engine_options(given: dict) -> dict:
    unknown = sorted(set(given) - set(_DEFAULTS))
    if unknown:
        raise TypeError(
            f"unknown option{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}; take "
            f"{', '.join(_DEFAULTS)}"
        )
    return _DEFAULTS | given


class Communicator:
    """Membership of this process, as one rank, in a group of ranks.

    All ranks create it, and make the same calls on it in the same order. Its calls release the
    interpreter's lock while they wait. A call from another thread, such as `abort`, is then
    possible; a signal handler of Python, such as that of Ctrl-C, runs only after the call.

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

    def __init__(
        self,
        id: UniqueId | Sequence[UniqueId],
        rank: int,
        ranks: int,
        *,
        device: int | None = None,
        **options: Any,
    ) -> None:
        given = _engine_options(options)
        ids = [id] if isinstance(id, UniqueId) else list(id)
        if not ids:
            raise InvalidArgumentError(
                "a communicator needs the id that all ranks hold, and none was given; pass one of "
                "UniqueId.create"
            )
        if device is None:
            self._core: Any = _core.Core.create([one.bytes for one in ids], rank, ranks, _options(given))
            self._device = CPU
        else:
            from ._gpu import GpuCore

            self._core = GpuCore.create([one.bytes for one in ids], rank, ranks, device, given)
            self._device = device
        self._given = given

    @classmethod
    def _wrap(cls, core: Any, device: int, given: dict) -> Communicator:
        made = cls.__new__(cls)
        made._core, made._device, made._given = core, device, given
        return made

    @classmethod
    def from_env(cls, *, device: int | str | None = None, **options: Any) -> Communicator:
        """Creates the rank that the launcher describes: torchrun, mpirun, srun, or none.

        Without a launcher it is a rank alone. Options are those of the class.

        Parameters
        ----------
        device : int, "local" or None
            ``"local"``: the CUDA device with the number of this rank on its host.
        """
        given = _engine_options(options)
        if device is None:
            return cls._wrap(_core.Core.from_env(_options(given)), CPU, given)
        if isinstance(device, str) and device != "local":
            raise InvalidArgumentError(f'there is no device "{device}"; take a number or "local"')
        data, rank, ranks, local, _ = _core.launched()
        chosen = local if isinstance(device, str) else device
        return cls(UniqueId(data), rank, ranks, device=chosen, **options)

    @classmethod
    def create_all(cls, ranks: int, **options: Any) -> list[Communicator]:
        """Creates all ranks in this process, on the CPU. Item i is rank i; use each in a thread.

        The interpreter's lock is free while a rank waits, so threads make progress.
        """
        given = _engine_options(options)
        made = _core.Core.create_all(ranks, _options(given))
        return [cls._wrap(core, CPU, given) for core in made]

    # What it is.

    @property
    def rank(self) -> int:
        """This rank, from 0 to ``ranks - 1``."""
        return self._core.rank

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self._core.ranks

    @property
    def device(self) -> int | None:
        """CUDA device, or None on the CPU."""
        return None if self._device == CPU else self._device

    @property
    def name(self) -> str:
        """Name in messages."""
        return self._given["name"]

    @property
    def memory_used(self) -> int:
        """Bytes of connections and scratch memory that this rank has allocated."""
        return self._core.memory_used

    def host(self, rank: int) -> str:
        """Returns the name of the host of `rank`."""
        self._check_rank(rank, "rank")
        return self._core.host(rank)

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        place = "cpu" if self._device == CPU else f"cuda:{self._device}"
        return f"<ccl.Communicator rank {self.rank} of {self.ranks}, {place}{name}>"

    # Life.

    def split(self, color: int | None, key: int | None = None, **options: Any) -> Communicator | None:
        """Creates a communicator of the ranks with the same color. Collective.

        Parameters
        ----------
        color : int or None
            Ranks with the same color form a communicator. None: this rank gets none.
        key : int, optional
            Ranks are ordered by key, then by their rank here. Default: the rank here.

        Returns
        -------
        Communicator or None
        """
        given = self._given | _only_known(options)
        made = self._core.split(
            -1 if color is None else color, self.rank if key is None else key, self._taken(given)
        )
        return None if made is None else self._wrap(made, self._device, given)

    def shrink(
        self, excluded: Sequence[int], *, abort_parent: bool = False, **options: Any
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
        given = self._given | _only_known(options)
        made = self._core.shrink(list(excluded), abort_parent, self._taken(given))
        return self._wrap(made, self._device, given)

    def barrier(self) -> None:
        """Blocks until all ranks have called it."""
        self._core.barrier()

    def finalize(self) -> None:
        """Ends the communicator: waits for this rank's calls and for all ranks. Collective."""
        self._core.finalize()

    def abort(self, why: str = "abort was called") -> None:
        """Ends all running and waiting operations on all ranks. Waits for no rank.

        Any thread may call it. Calls that are ended raise `AbortedError`.
        """
        self._core.abort(why)

    def check_status(self) -> None:
        """Raises the first failure of the communicator, if it has failed. Waits for no rank."""
        self._core.status()

    def report(self) -> str:
        """Returns the state of all ranks, and the rank that is behind. Takes at most 2 s."""
        return self._core.report()

    def dump(self, folder: str | os.PathLike[str]) -> None:
        """Writes the operations that this rank remembers to files in `folder`, which exists.

        `ccl_report FOLDER` says who was behind, and PyTorch's `torchfrtrace` reads the files, too.
        With `CCL_DUMP_DIR` a rank also writes them when its communicator fails.
        """
        self._core.dump(os.fspath(folder))

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Finalizes, or aborts if the block ended with an exception."""
        if kind is None:
            self.finalize()
        else:
            self.abort(f"rank {self.rank} left its block with {kind.__name__}: {error}")

    # Reductions.

    def all_reduce(self, data: Any, op: str = "sum", *, out: Any = None, stream: Any = None) -> Any:
        """Combines the arrays of all ranks element by element; every rank gets the result.

        Parameters
        ----------
        data : array
            Any shape, with the same number of elements on all ranks.
        op : {"sum", "prod", "min", "max", "avg"}
            Reduction. Integers wrap. Types of 16 and 8 bits are added up in float32. Min and max
            take numbers before NaN. An average of integers truncates.
        out : array, optional
            As many elements as `data`, of the same type. `data` itself: in place. Default: a new
            array of the shape of `data`.
        stream : Stream, int or CUDA stream, optional
            See `Stream` for CPU ranks. On GPUs: the object, or the handle as an integer; the call
            returns when it is queued. Default: CPU ranks block, and GPUs take the legacy default
            stream.

        Returns
        -------
        array
            `out`, or the new array.

        Raises
        ------
        InvalidArgumentError
            An array is not contiguous, is read-only, or has another size or type than it must.
        MismatchError
            With ``check=True``, if ranks gave different arguments.
        TimedOutError, PeerLostError, AbortedError
            The call could not complete. The message names the rank at fault.
        """
        send = self._read(data, "data")
        self._check_op(op, send)
        out, recv = self._result(out, data, send, send.shape)
        self._reduce(self._core.all_reduce, send, recv, send.elements, op, 0, stream)
        return out

    def reduce_scatter(
        self, data: Any, op: str = "sum", *, out: Any = None, stream: Any = None
    ) -> Any:
        """Combines the arrays of all ranks; rank i gets part i of the result.

        See `all_reduce` for the other parameters, the result and the errors.

        Parameters
        ----------
        data : array
            Its first extent must be a multiple of the number of ranks.
        out : array, optional
            ``1 / ranks`` of the elements. In place: a view of part `rank` of `data`. Default: a new
            array whose first extent is that of `data` divided by the number of ranks.
        """
        send = self._read(data, "data")
        self._check_op(op, send)
        out, recv = self._result(out, data, send, self._part(send, out))
        self._reduce(self._core.reduce_scatter, send, recv, send.elements // self.ranks, op, 0, stream)
        return out

    def reduce(
        self, data: Any, op: str = "sum", *, root: int = 0, out: Any = None, stream: Any = None
    ) -> Any:
        """Combines the arrays of all ranks; rank `root` gets the result.

        `out` is only used on the root. Returns the result there, and None on other ranks. See
        `all_reduce` for the other parameters and the errors.
        """
        send = self._read(data, "data")
        self._check_op(op, send)
        self._check_rank(root, "root")
        recv = None
        if self.rank == root:
            out, recv = self._result(out, data, send, send.shape)
        self._reduce(self._core.reduce, send, recv, send.elements, op, root, stream)
        return out if self.rank == root else None

    # Movements.

    def all_gather(self, data: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Gives every rank the arrays of all ranks, in the order of the ranks.

        `out` has ``ranks`` times as many elements as `data`; by default it is a new array of the
        shape ``(ranks, *data.shape)``. In place: `data` is a view of row `rank` of `out`. Returns
        `out`.
        """
        send = self._read(data, "data")
        out, recv = self._result(out, data, send, (self.ranks, *send.shape))
        self._move(self._core.all_gather, send, recv, send.elements, 0, stream)
        return out

    def broadcast(self, data: Any, *, root: int = 0, stream: Any = None) -> Any:
        """Writes the root's `data` into `data` of every rank. Returns `data`."""
        self._check_rank(root, "root")
        mine = self._read(data, "data")
        if self.rank != root:
            mine = self._write(data, "data")
        self._move(self._core.broadcast, mine, mine, mine.elements, root, stream)
        return data

    def gather(self, data: Any, *, root: int = 0, out: Any = None, stream: Any = None) -> Any:
        """Gives the root the arrays of all ranks, in the order of the ranks.

        `out` is only used on the root; by default it is a new array of the shape
        ``(ranks, *data.shape)``. Returns it there, and None on other ranks.
        """
        send = self._read(data, "data")
        self._check_rank(root, "root")
        recv = None
        if self.rank == root:
            out, recv = self._result(out, data, send, (self.ranks, *send.shape))
        self._move(self._core.gather, send, recv, send.elements, root, stream)
        return out if self.rank == root else None

    def scatter(
        self, data: Any = None, *, root: int = 0, out: Any = None, stream: Any = None
    ) -> Any:
        """Gives rank i part i of the root's array.

        Parameters
        ----------
        data : array
            Only read on the root. Its first extent must be a multiple of the number of ranks.
        out : array
            This rank's part. Needed except on the root, where it is a new array by default.
        """
        self._check_rank(root, "root")
        send = None
        if self.rank == root:
            if data is None:
                raise InvalidArgumentError(f"scatter needs data on its root, rank {root}")
            send = self._read(data, "data")
            out, recv = self._result(out, data, send, self._part(send, out))
        elif out is None:
            raise InvalidArgumentError(
                f"scatter needs out= on rank {self.rank}, which only receives (the root is rank "
                f"{root})"
            )
        else:
            recv = self._write(out, "out")
        self._move(self._core.scatter, send, recv, recv.elements, root, stream)
        return out

    def all_to_all(self, data: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Sends part i of `data` to rank i. Part i of the result comes from rank i.

        The first extent of `data` must be a multiple of the number of ranks. `out` has the same
        number of elements, and may not be `data`. Returns `out`.
        """
        send = self._read(data, "data")
        count = math.prod(self._part(send, out))
        out, recv = self._result(out, data, send, send.shape)
        self._move(self._core.all_to_all, send, recv, count, 0, stream)
        return out

    def all_to_all_v(
        self,
        data: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        send_offsets: Sequence[int] | None = None,
        recv_offsets: Sequence[int] | None = None,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Sends ``send_counts[i]`` elements to rank i, and receives ``recv_counts[i]`` from it.

        Parameters
        ----------
        send_counts, recv_counts : sequence of int
            Numbers of elements, one for each rank. What rank i sends to rank j must be what rank j
            receives from rank i.
        send_offsets, recv_offsets : sequence of int, optional
            Offsets in elements. Default: one part behind the other.
        out : array, optional
            Default: a new array of one dimension that holds all parts.
        """
        send = self._read(data, "data")
        counts = [list(map(operator.index, c)) for c in (send_counts, recv_counts)]
        offsets = [
            _offsets(c) if given is None else list(map(operator.index, given))
            for c, given in zip(counts, (send_offsets, recv_offsets))
        ]
        names = ("send_counts", "recv_counts", "send_offsets", "recv_offsets")
        for name, values in zip(names, counts + offsets):
            self._check_counts(name, values)
        needed = [max(map(sum, zip(o, c))) for o, c in zip(offsets, counts)]
        if send.elements < needed[0]:
            raise InvalidArgumentError(
                f"data has {send.elements} elements, and send_counts and send_offsets reach to "
                f"{needed[0]}"
            )
        if out is None:
            out = _buffers.empty(data, send, (needed[1],), "out")
        recv = self._write(out, "out")
        self._check_type(send, recv, "out")
        if recv.elements < needed[1]:
            raise InvalidArgumentError(
                f"out has {recv.elements} elements, and recv_counts and recv_offsets reach to "
                f"{needed[1]}"
            )
        self._core.all_to_all_v(
            send.address, counts[0], offsets[0], recv.address, counts[1], offsets[1], send.type,
            self._stream(stream, send, recv),
        )  # fmt: skip
        self._keep(stream, send, recv)
        return out

    # Messages between two ranks.

    def send(self, data: Any, to: int, *, stream: Any = None) -> None:
        """Sends `data` to rank `to`, which must receive as many elements.

        A send waits for its receiver. Two ranks that send to each other must use `send_recv`.
        """
        self.exchange([("send", data, to)], stream=stream)

    def recv(self, out: Any, source: int, *, stream: Any = None) -> Any:
        """Receives into `out` from rank `source`. Returns `out`."""
        self.exchange([("recv", out, source)], stream=stream)
        return out

    def send_recv(self, data: Any, to: int, out: Any, source: int, *, stream: Any = None) -> Any:
        """Sends `data` to rank `to` and receives into `out` from rank `source`. Returns `out`."""
        self.exchange([("send", data, to), ("recv", out, source)], stream=stream)
        return out

    def exchange(self, messages: Sequence[tuple[str, Any, int]], *, stream: Any = None) -> None:
        """Runs any number of messages at once.

        Parameters
        ----------
        messages : sequence of (kind, array, peer)
            `kind` is ``"send"`` or ``"recv"``. Messages between the same two ranks match in order.
            Each may have its own type.
        """
        given, buffers = [], []
        for kind, array, peer in messages:
            if kind not in ("send", "recv"):
                raise InvalidArgumentError(f'there is no message "{kind}"; take "send" or "recv"')
            sends = kind == "send"
            buffer = self._read(array, kind) if sends else self._write(array, kind)
            self._check_rank(peer, "to" if sends else "source")
            buffers.append(buffer)
            given.append((sends, buffer.address, buffer.elements, buffer.type, peer))
        self._core.messages(given, self._stream(stream, *buffers))
        self._keep(stream, *buffers)

    # Checks.

    def _taken(self, given: dict) -> Any:
        """Returns the options as the engine takes them."""
        return _options(given) if self._device == CPU else given

    def _read(self, array: Any, what: str) -> Buffer:
        return self._on_device(_buffers.read(array, what), what)

    def _write(self, array: Any, what: str) -> Buffer:
        return self._on_device(_buffers.write(array, what), what)

    def _on_device(self, buffer: Buffer, what: str) -> Buffer:
        if buffer.device not in (self._device, _buffers.ANYWHERE):
            where = ["in CPU memory" if d == CPU else f"on CUDA device {d}"
                     for d in (buffer.device, self._device)]  # fmt: skip
            raise InvalidArgumentError(
                f"{what} is {where[0]}, and rank {self.rank} of this communicator works {where[1]}; "
                "copy it, or create a communicator with device="
            )
        return buffer

    def _result(
        self, out: Any, like: Any, send: Buffer, shape: tuple[int, ...]
    ) -> tuple[Any, Buffer]:
        """Returns the array of the result, and its memory. Creates the array if `out` is None."""
        if out is None:
            out = _buffers.empty(like, send, shape, "out")
            return out, self._read(out, "out")
        recv = self._write(out, "out")
        self._check_type(send, recv, "out")
        count = math.prod(shape)
        if recv.elements != count:
            raise InvalidArgumentError(
                f"out has {recv.elements} elements on rank {self.rank}, and the call writes {count} "
                f"(data has {send.elements}, and there are {self.ranks} ranks)"
            )
        return out, recv

    def _check_type(self, send: Buffer, recv: Buffer, what: str) -> None:
        if recv.type != send.type:
            names = [_core.types[b.type][0] for b in (send, recv)]
            raise InvalidArgumentError(
                f"data has elements of {names[0]} and {what} of {names[1]} on rank {self.rank}; "
                "both must be the same"
            )

    def _part(self, send: Buffer, out: Any) -> tuple[int, ...]:
        """Returns the shape of one of `ranks` equal parts of `send`."""
        extent = send.shape[0] if send.shape else 1
        if extent % self.ranks == 0 and send.shape:
            return (extent // self.ranks, *send.shape[1:])
        if out is not None and send.elements % self.ranks == 0:
            return (send.elements // self.ranks,)
        raise InvalidArgumentError(
            f"data of shape {send.shape} cannot be divided among {self.ranks} ranks; its first "
            "extent must be a multiple of that number"
        )

    def _check_op(self, op: str, send: Buffer) -> None:
        if send.boolean:
            raise InvalidArgumentError(
                f"data has elements of bool on rank {self.rank}, which only move; view them as uint8 "
                "and take max (or) or min (and)"
            )
        if op not in _REDUCTIONS:
            raise InvalidArgumentError(
                f"there is no reduction {op!r}; take {', '.join(_REDUCTIONS)}"
            )

    def _check_rank(self, rank: int, what: str) -> None:
        if not 0 <= rank < self.ranks:
            raise InvalidArgumentError(
                f"{what} {rank} is no rank of this communicator (it has ranks 0 to "
                f"{self.ranks - 1})"
            )

    def _check_counts(self, name: str, values: list[int]) -> None:
        if len(values) != self.ranks or any(value < 0 for value in values):
            raise InvalidArgumentError(
                f"{name} is {values} on rank {self.rank}; it must have {self.ranks} numbers, one "
                "for each rank, none of them negative"
            )

    def _reduce(self, run, send, recv, count, op, root, stream) -> None:
        at = recv.address if recv is not None else 0
        run(send.address, at, count, send.type, op, root, self._stream(stream, send, recv))
        self._keep(stream, send, recv)

    def _move(self, run, send, recv, count, root, stream) -> None:
        some = send if send is not None else recv
        run(
            send.address if send is not None else 0,
            recv.address if recv is not None else 0,
            count, some.type, root, self._stream(stream, send, recv),
        )  # fmt: skip
        self._keep(stream, send, recv)

    def _stream(self, stream: Any, *buffers: Buffer | None) -> Any:
        """Returns what the engine takes for `stream`, which waits for what writes the buffers."""
        if self._device != CPU:
            if isinstance(stream, Stream):
                raise InvalidUsageError("ccl.Stream is for CPU ranks; pass a CUDA stream")
            from ._gpu import wait_for_producer

            handle = _cuda_stream(stream)
            for producer in {b.stream for b in buffers if b is not None and b.stream is not None}:
                wait_for_producer(self._device, producer, handle)
            return handle
        if stream is None:
            return None
        if not isinstance(stream, Stream):
            raise InvalidUsageError(
                f"rank {self.rank} is a CPU rank, and a {type(stream).__name__} is no ccl.Stream"
            )
        return stream._queue

    def _keep(self, stream: Any, *buffers: Buffer | None) -> None:
        """Keeps the memory of a queued call until the stream has run it."""
        if isinstance(stream, Stream):
            stream._kept.append(buffers)
        elif self._device != CPU:
            tensors = [b.tensor for b in buffers if b is not None and b.tensor is not None]
            if tensors:
                _record(tensors, _cuda_stream(stream), self._device)


def _record(tensors: list[Any], handle: int, device: int) -> None:
    """Tells PyTorch's allocator that the stream uses the tensors."""
    import torch  # type: ignore[import-not-found]

    if torch.cuda.current_stream(device).cuda_stream != handle:
        stream = torch.cuda.ExternalStream(handle, device=device)
        for tensor in tensors:
            tensor.record_stream(stream)


def _cuda_stream(stream: Any) -> int:
    """Returns the handle of a CUDA stream: an integer, or an object of a framework."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return (protocol() if callable(protocol) else protocol)[1]
    for attribute in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, Numba
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    raise NotSupportedError(
        f"a {type(stream).__name__} is no CUDA stream (it has no __cuda_stream__, cuda_stream or "
        "ptr); pass its handle as an integer"
    )


def _offsets(counts: list[int]) -> list[int]:
    offsets, at = [], 0
    for count in counts:
        offsets.append(at)
        at += count
    return offsets


def _only_known(options: dict) -> dict:
    _engine_options(options)
    return options
