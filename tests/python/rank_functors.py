"""Ranks as threads that reduce with C++ functors of their own, compiled by the first call."""

import os
import pickle
import tempfile
import threading
from pathlib import Path
from unittest import mock

import numpy as np

import ccl
from ccl import _functor

CLAMPED = """
struct Clamped {
  template <class T>
  T operator()(T a, T b) const { return a + b < 5 ? a + b : 5; }
};
"""


def each(ranks, call, **options):
    """Returns what `call(communicator)` returns, or raises, on each rank."""
    results = [None] * ranks

    def work(comm):
        try:
            results[comm.rank] = call(comm)
            comm.finalize()
        except ccl.Error as error:
            results[comm.rank] = error

    threads = [
        threading.Thread(target=work, args=(c,))
        for c in ccl.Communicator.create_all(ranks, timeout=20, **options)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def refused(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def reduces(cache):
    clamped = ccl.Functor("Clamped", CLAMPED)
    data = np.arange(1, 5)
    for dtype in ("float32", "int64"):  # 3 ranks: 3, 6, 9 and 12, at most 5

        def all_three(comm):
            mine = data.astype(dtype)
            parts = np.concatenate([mine, mine, mine])
            return (comm.all_reduce(mine, clamped), comm.reduce_scatter(parts, clamped),
                    comm.reduce(mine, clamped, root=1))  # fmt: skip

        for rank, made in enumerate(each(3, all_three, check=True)):
            assert not isinstance(made, Exception), made
            for one in made[: 3 if rank == 1 else 2]:
                assert one.dtype == dtype and list(one) == [3, 5, 5, 5], (dtype, rank, made)
    assert len(list(cache.glob("*.so"))) == 2, "one extension for each type, and no other file"
    assert len(list(cache.iterdir())) == 2


def streams():
    def call(comm):
        data = np.full(1000, 2.0, "float32")
        with ccl.Stream() as stream:
            comm.all_reduce(data, ccl.Functor("Clamped", CLAMPED), out=data, stream=stream)
            stream.synchronize()
        return data

    assert all((made == 4).all() for made in each(2, call))


def cached(cache):
    """An equal source is not compiled again; one that its header changes is."""
    before = {file: file.stat().st_mtime_ns for file in cache.glob("*.so")}
    clamped = ccl.Functor("Clamped", CLAMPED)
    clamped._address(FLOAT)
    again = pickle.loads(pickle.dumps(clamped))  # as for a process that multiprocessing spawns
    assert again._key == clamped._key
    again._address(FLOAT)
    assert before == {file: file.stat().st_mtime_ns for file in cache.glob("*.so")}
    header = cache.parent / "mine.hpp"
    inner = cache.parent / "inner.hpp"
    header.write_text('#include "inner.hpp"\n')
    for value in (1, 2):
        inner.write_text("namespace mine { struct Fixed { float operator()(float, float) const "
                         f"{{ return {value}; }} }}; }}\n")  # fmt: skip
        fixed = pickle.loads(pickle.dumps(ccl.Functor("mine::Fixed", header=header)))
        made = each(2, lambda comm: comm.all_reduce(np.zeros(3, "float32"), fixed))
        assert all(list(one) == [value] * 3 for one in made), made
    assert len(list(cache.glob("*.so"))) == len(before) + 2


def faults(cache):
    alone = ccl.Communicator.create_all(1)[0]
    data = np.ones(3, "float32")

    def run(name, source, **options):
        return lambda: alone.all_reduce(data, ccl.Functor(name, source, **options))

    body = "{ float operator()(float a, float b) const { return a + b; } %s };"
    refused(ccl.CompileError, run("Bad", "struct Bad {\n  nonsense here;\n};"),
            "functor Bad", "functor Bad:2", "nonsense")  # fmt: skip
    refused(ccl.CompileError, run("Held", "struct Held " + body % "float held;"), "data members")
    refused(ccl.CompileError, run("One", "struct One { float operator()(float) const; };"),
            "must have: float operator()")  # fmt: skip
    refused(ccl.CompileError, run("Fixed", "struct Fixed " + body % "static constexpr bool commutative = false;"),
            "not commutative")  # fmt: skip
    refused(ccl.CompileError, run("Lacks", "float missing_(float);\nstruct Lacks { "
                                  "float operator()(float a, float b) const { return missing_(a + b); } };"),
            "does not load", "missing_", str(cache))  # fmt: skip
    refused(ccl.CompileError, run("Clamped", CLAMPED, compiler="/no/compiler"),
            "/no/compiler", "CXX")  # fmt: skip
    silent = cache.parent / "silent"
    silent.write_text('#!/bin/sh\ncase "$*" in *--version) exec sleep 300 ;; esac\nexec c++ "$@"\n')
    silent.chmod(0o700)
    limit, _functor._VERSION_LIMIT_S = _functor._VERSION_LIMIT_S, 0.5
    refused(ccl.TimedOutError, run("Clamped", CLAMPED, compiler=str(silent)),
            str(silent), "version within 0.5 s", "CXX")  # fmt: skip
    _functor._VERSION_LIMIT_S = limit
    refused(ccl.InvalidArgumentError, run("two words", CLAMPED), "two words")
    refused(ccl.InvalidArgumentError, run("Clamped", None), "source=")
    refused(ccl.InvalidArgumentError, lambda: ccl.Functor("A", header="/no/file"), "/no/file")
    with mock.patch("tempfile.mkstemp", side_effect=OSError(30, "Read-only file system")):
        refused(ccl.InvalidUsageError, run("Clamped", CLAMPED + "// another"),
                "functor Clamped", str(cache), "Read-only", "XDG_CACHE_HOME")  # fmt: skip
    cache.chmod(0o777)
    refused(ccl.InvalidUsageError, run("Clamped", CLAMPED), str(cache), "XDG_CACHE_HOME")
    cache.chmod(0o700)
    alone.finalize()


def differ():
    """Ranks whose sources differ are told so, with check=True."""

    def call(comm):
        limit = str(5 + comm.rank)
        return comm.all_reduce(np.ones(3, "float32"), ccl.Functor("Clamped", CLAMPED.replace("5", limit)))

    for made in each(2, call, check=True):
        assert isinstance(made, ccl.MismatchError) and "Clamp" in str(made), made


FLOAT = [name for name, _ in ccl._core.types].index("float")
with tempfile.TemporaryDirectory() as folder:
    os.environ["XDG_CACHE_HOME"] = folder
    cache = Path(folder, "ccl", "functors")
    reduces(cache)
    streams()
    cached(cache)
    faults(cache)
    differ()
