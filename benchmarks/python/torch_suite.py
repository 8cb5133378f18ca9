#!/usr/bin/env python3
"""Runs torch.distributed's own test suite with this backend, and counts the results.

    torch_suite.py [--ranks 3] [--backend ccl_comm] [--limit 120] [--all | --cuda] [--part 1/3]
                   [--start fork|spawn] [PATTERN ...]

The suite is distributed_test.py of the installed PyTorch. Its tests are open to any backend, except
those that name another one: they are skipped. With --all, tests for gloo or MPI on CPU tensors run
too. With --cuda, the backend stands for NCCL, so tests for NCCL run, and those that NCCL skips do
not. `--part 1/3` runs the first of three parts. PATTERN is a part of a test's name. Each test starts
its ranks: by fork, or, with --cuda, as new interpreters, because PyTorch uses CUDA as it is imported.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--ranks", type=int, default=3)
parser.add_argument("--backend", default="ccl_comm")
parser.add_argument("--limit", type=int, default=120, help="seconds for one test")
which = parser.add_mutually_exclusive_group()
which.add_argument("--all", action="store_true", help="also tests that name gloo or MPI")
which.add_argument("--cuda", action="store_true", help="on CUDA tensors: the tests that NCCL runs")
parser.add_argument("--part", default="1/1", help="K/N: every N-th test, from the K-th on")
parser.add_argument("--start", choices=("fork", "spawn"), help="how a test starts its ranks")
parser.add_argument("patterns", nargs="*")
given = parser.parse_args()
start = given.start or ("spawn" if given.cuda else "fork")
part, parts = map(int, given.part.split("/"))
if not 1 <= part <= parts:
    parser.error(f"--part {given.part} is none; write 1/3, 2/3 or 3/3")

# The backend may be NVIDIA's, whose multicast can put the GPUs of a shared host out of service.
os.environ["NCCL_NVLS_ENABLE"] = "0"
if __name__ == "__main__":  # a new interpreter imports this file by another name
    folder = tempfile.mkdtemp(prefix="torch_suite")
    for name in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(folder, name))
    os.environ |= {"BACKEND": given.backend, "WORLD_SIZE": str(given.ranks), "TEMP_DIR": folder,
                   "INIT_METHOD": "file://" + os.path.join(folder, "init"),
                   "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(given.limit)}  # fmt: skip

import torch  # noqa: E402
import torch.testing._internal.common_distributed as common  # noqa: E402

common.DistTestCases.backend_feature["ddp"].add(given.backend)
common.DistTestCases.backend_feature["subgroup"].add(given.backend)
common.DistTestCases.backend_feature["plugin"].add(given.backend)
if given.cuda:
    common.DistTestCases.backend_feature["gpu"].add(given.backend)
    common.DistTestCases.backend_feature["cuda"].add(given.backend)

if given.backend == "ccl_comm":
    import ccl.torch  # noqa: E402, F401
NAME = "torch.testing._internal.distributed.distributed_test"
# Conditions of the suite that name backends, and what stands for them with --all and with --cuda.
AS_NCCL = {
    'BACKEND == "nccl"': "True",
    'BACKEND != "nccl"': "False",
    'if backend == "nccl"': "if True",
    'if backend != "nccl"': "if False",
    'dist.get_backend() != "nccl"': "False",
    'dist.get_backend(), "nccl"': "dist.get_backend(), BACKEND",
}
OPENED = {
    'BACKEND != "gloo"': "False",
    'BACKEND != "mpi"': "False",
    "if BACKEND not in backends:": 'if BACKEND not in backends and "gloo" not in backends:',
}


def load():
    """Returns the module of the suite."""
    if not given.all and not given.cuda:
        return importlib.import_module(NAME)
    spec = importlib.util.find_spec(NAME)
    text = Path(spec.origin).read_text()
    for old, new in (AS_NCCL if given.cuda else OPENED).items():
        text = text.replace(old, new)
    module = sys.modules[NAME] = types.ModuleType(NAME)
    module.__file__ = spec.origin
    exec(compile(text, spec.origin, "exec"), module.__dict__)
    return module


suite = load()

class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context(start).Process)


class Results(unittest.TextTestResult):
    """Prints one line for each test, at once."""

    def startTest(self, test):
        super().startTest(test)
        self.stream.flush()


def main():
    names = unittest.TestLoader().getTestCaseNames(Suite)
    if given.patterns:
        names = [n for n in names if any(p in n for p in given.patterns)]
    names = names[part - 1 :: parts]
    runner = unittest.TextTestRunner(sys.stdout, verbosity=2, resultclass=Results)
    results = runner.run(unittest.TestSuite(Suite(n) for n in names))
    bad = [str(test).split()[0] for test, _ in results.failures + results.errors]
    skipped = len(results.skipped)
    print(f"{given.backend}, {given.ranks} ranks: {results.testsRun - skipped - len(bad)} passed, "
          f"{len(bad)} failed, {skipped} skipped")  # fmt: skip
    for name in bad:
        print(f"failed: {name}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
