#!/usr/bin/env python3
"""Runs torch.distributed's own test suite with this backend, on CPU ranks, and counts the results.

    torch_suite.py [--ranks 3] [--backend ccl_comm] [--limit 120] [PATTERN ...]

The suite is distributed_test.py of the installed PyTorch. Its tests are open to any backend, except
those that name another one, and are skipped. PATTERN is a part of a test's name.
"""

import argparse
import os
import sys
import tempfile
import unittest

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--ranks", type=int, default=3)
parser.add_argument("--backend", default="ccl_comm")
parser.add_argument("--limit", type=int, default=120, help="seconds for one test")
parser.add_argument("patterns", nargs="*")
given = parser.parse_args()

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

if given.backend == "ccl_comm":
    import ccl.torch  # noqa: E402, F401
from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402


class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
        # A new interpreter for each rank would take some seconds.


class Results(unittest.TextTestResult):
    """Prints one line for each test, at once."""

    def startTest(self, test):
        super().startTest(test)
        self.stream.flush()


def main():
    names = unittest.TestLoader().getTestCaseNames(Suite)
    if given.patterns:
        names = [n for n in names if any(p in n for p in given.patterns)]
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
