"""One of the ranks of test_collectives.py: every operation, type and reduction, with results that
are computed here."""

import sys
import tempfile
import warnings

import numpy as np

import ccl

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

warnings.filterwarnings("ignore", category=RuntimeWarning)
TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"]
TYPES += ["float32", "float64"]
if ml_dtypes:
    TYPES += ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
NAMES = {"float16": "half", "float32": "float", "float64": "double", "float8_e4m3fn": "f8e4m3",
         "float8_e5m2": "f8e5m2"}  # fmt: skip
REDUCED = ccl.versions()["reductions on CPU ranks"].split(", ")
COUNTS = [0, 1, 7, 1000, 70001]


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name)) if name.startswith(("bf", "float8")) else np.dtype(name)


def values(rank, count, name):
    """Small numbers, whose sums and products are exact in every type."""
    return (1 + (np.arange(count) + rank) % 2).astype(dtype(name))


def same(got, expected, what):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape, (what, got, expected)
    if got.tobytes() != expected.tobytes():
        at = int(np.flatnonzero(got.ravel() != expected.ravel())[0])
        raise AssertionError(f"{what}: element {at} is {got.ravel()[at]}, not {expected.ravel()[at]}")


def reduced(op, ranks, count, name):
    all = np.stack([values(r, count, name).astype("float64") for r in range(ranks)])
    how = {"sum": all.sum, "prod": all.prod, "min": all.min, "max": all.max}
    if op == "avg":
        result = all.sum(axis=0) / ranks
        return (np.trunc(result) if "int" in name else result).astype(dtype(name))
    return how[op](axis=0).astype(dtype(name))


def check_reductions(comm):
    n, me, tried = comm.ranks, comm.rank, 0
    for name in TYPES:
        if NAMES.get(name, name) not in REDUCED:
            try:
                comm.all_reduce(values(me, 4, name))
            except ccl.NotSupportedError as error:
                assert "CCL_PYTHON_TYPES" in str(error) and error.rank == me, error
                continue
            raise AssertionError(f"{name} is not listed, and was reduced")
        for op in ("sum", "prod", "min", "max", "avg"):
            for count in COUNTS:
                what = f"{op} of {count} {name}"
                mine = values(me, count, name)
                expected = reduced(op, n, count, name)
                same(comm.all_reduce(mine, op), expected, what)
                in_place = mine.copy()
                assert comm.all_reduce(in_place, op, out=in_place) is in_place
                same(in_place, expected, what + " in place")
                root = comm.reduce(mine, op, root=1)
                assert (root is None) == (me != 1)
                if root is not None:
                    same(root, expected, "reduce " + what)
                tried += 3
            count = 5 * n
            part = reduced(op, n, count, name).reshape(n, 5)[me]
            same(comm.reduce_scatter(values(me, count, name), op), part, f"reduce_scatter {op} {name}")
            whole = values(me, count, name)
            comm.reduce_scatter(whole, op, out=whole[5 * me : 5 * me + 5])
            same(whole[5 * me : 5 * me + 5], part, f"reduce_scatter in place {op} {name}")
            tried += 2
    return tried


def check_movements(comm):
    n, me, tried = comm.ranks, comm.rank, 0
    for name in [*TYPES, "bool"]:
        for count in COUNTS:
            kind = dtype(name)
            mine = (np.arange(count) * (me + 1)).astype("uint8").astype(kind)
            of = [(np.arange(count) * (r + 1)).astype("uint8").astype(kind) for r in range(n)]
            what = f"{count} {name}"
            same(comm.all_gather(mine), np.stack(of), "all_gather " + what)
            rows = np.zeros((n, count), kind)
            rows[me] = mine
            comm.all_gather(rows[me], out=rows)
            same(rows, np.stack(of), "all_gather in place " + what)
            root = n - 1
            same(comm.broadcast(mine.copy(), root=root), of[root], "broadcast " + what)
            got = comm.gather(mine, root=root)
            assert (got is None) == (me != root)
            if got is not None:
                same(got, np.stack(of), "gather " + what)
            out = np.zeros(count, kind)
            comm.scatter(np.stack(of) if me == root else None, root=root, out=out)
            same(out, of[me], "scatter " + what)
            table = np.stack([of[me]] * n)
            same(comm.all_to_all(table), np.stack(of), "all_to_all " + what)
            to, source = (me + 1) % n, (me - 1) % n
            same(comm.send_recv(mine, to, out, source), of[source], "send_recv " + what)
            tried += 7
    return tried


def check_uneven(comm):
    n, me = comm.ranks, comm.rank
    counts = [[(3 * i + 5 * j) % 7 for j in range(n)] for i in range(n)]  # of i to j
    mine = np.arange(sum(counts[me]), dtype="int32") + 1000 * me
    received = [counts[r][me] for r in range(n)]
    expected = []
    for r in range(n):
        start = sum(counts[r][:me])
        expected += list(range(1000 * r + start, 1000 * r + start + counts[r][me]))
    got = comm.all_to_all_v(mine, counts[me], received)
    same(got, np.array(expected, "int32"), "all_to_all_v")
    if me == 0:
        comm.send(np.full(3, 7.5), 1)
    elif me == 1:
        same(comm.recv(np.empty(3), 0), np.full(3, 7.5), "recv")
    peers = [p for p in range(n) if p != me]
    boxes = [np.empty(p + 1, "int16") for p in peers]
    comm.exchange(
        [("recv", box, p) for box, p in zip(boxes, peers)]
        + [("send", np.full(me + 1, me, "int16"), p) for p in peers]
    )
    for box, p in zip(boxes, peers):
        same(box, np.full(p + 1, p, "int16"), "exchange")
    return 3


def check_others(comm):
    """Streams, splits, other buffers, threads."""
    n, me = comm.ranks, comm.rank
    with ccl.Stream() as stream:
        data = np.full(1000, me + 1.0, "float32")
        for _ in range(3):
            comm.all_reduce(data, "max", out=data, stream=stream)
    same(data, np.full(1000, float(n), "float32"), "on a stream")
    half = comm.split(me % 2, -me)
    assert half.ranks == (n + 1 - me % 2) // 2
    same(half.all_gather(np.array([me])).ravel(), np.arange(n)[::-1][(n - 1 - me) % 2 :: 2], "split")
    half.finalize()
    alone = comm.split(None if me else 0)
    assert (alone is None) == (me != 0)
    if alone is not None:
        assert (alone.rank, alone.ranks) == (0, 1)
        alone.finalize()
    box = bytearray([me] * 4)
    comm.broadcast(box, root=2)
    assert box == bytearray([2] * 4)

    class OnlyDLPack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **given):
            return self.array.__dlpack__(**given)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    data = np.full((2, 3), float(me), "float32")
    out = np.empty((2, 3), "float32")
    comm.all_reduce(OnlyDLPack(data), out=OnlyDLPack(out))
    same(out, np.full((2, 3), float(sum(range(n))), "float32"), "DLPack")
    comm.barrier()
    assert comm.host(0) and "rank" in comm.report() and comm.memory_used > 0
    comm.check_status()
    with tempfile.TemporaryDirectory() as folder:
        comm.dump(folder)
        said = ccl.report.text(folder)
        assert f"of {n} ranks, {n - 1} of which left no record" in said or n == 1, said
    return 6


def main():
    with ccl.Communicator.from_env(timeout=60, check=True) as comm:
        done = check_reductions(comm) + check_movements(comm) + check_uneven(comm)
        done += check_others(comm)
    print(f"rank {comm.rank}: {done} calls are right; reductions of {', '.join(REDUCED)}")
    if not ml_dtypes:
        print("SKIP: bfloat16 and float8 (ml_dtypes is not installed)")


if __name__ == "__main__":
    sys.exit(main())
