"""Tests of the package in one process, and of its library with two."""

import ctypes
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import launch

import ccl



def has_library():
    try:
        return bool(ccl.nccl.library())
    except ccl.NotSupportedError:
        return False


def in_process(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
        env=os.environ | environment,
    )  # fmt: skip


class Package(unittest.TestCase):
    def test_is_typed_and_complete(self):
        folder = Path(ccl.__file__).parent
        for file in ("py.typed", "_core.pyi", "include/ccl/ccl.hpp", "include/ccl/version.hpp",
                     "lib/libccl_runtime.a", "lib/cmake/ccl/cclConfig.cmake", "bin/ccl_perf",
                     "bin/ccl_topo"):  # fmt: skip
            self.assertTrue((folder / file).exists(), file)
        stub = (folder / "_core.pyi").read_text()
        self.assertIn("class Core", stub)
        self.assertIn(f'VERSION "{ccl.__version__}"', cmake_version())
        for name in ccl.__all__:
            self.assertTrue(getattr(ccl, name) is not None, name)

    def test_every_code_has_an_exception(self):
        codes = "invalid_argument invalid_usage mismatch bad_setting no_transport no_device_code "
        codes += "out_of_memory over_budget system cuda network refused timed_out peer_lost aborted "
        codes += "not_supported internal overflow"
        for code in codes.split():
            made = ccl._errors.create(code, f"rank 1: {code}: text", 1, 2, 3, "h", "shm")
            self.assertIsInstance(made, ccl.Error)
            self.assertEqual(made.code, code)
            self.assertTrue(type(made) is not ccl.InternalError or code == "internal", code)
            again = pickle.loads(pickle.dumps(made))
            self.assertEqual((str(again), again.peer, again.host), (str(made), 2, "h"))

    def test_ids(self):
        id = ccl.UniqueId.create()
        self.assertEqual(ccl.UniqueId(id.bytes), id)
        self.assertNotIn(id.bytes.hex()[:8], repr(id))
        self.assertNotEqual(ccl.UniqueId.create(), id)

    def test_ranks_as_threads(self):
        import threading

        ranks = ccl.Communicator.create_all(3, timeout=60)
        sums = [None] * 3

        def one(comm):
            data = bytearray([comm.rank + 1])
            sums[comm.rank] = bytearray(1)
            comm.exchange([("send", data, 0)] if comm.rank else
                          [("recv", sums[0], 1), ("recv", bytearray(1), 2)])  # fmt: skip
            comm.finalize()

        threads = [threading.Thread(target=one, args=(comm,)) for comm in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(sums[0], bytearray([2]))

    def test_tools(self):
        self.assertIn("cpu", ccl.topo.text("show").lower())
        with self.assertRaisesRegex(ccl.InvalidArgumentError, "there is no shwo"):
            ccl.topo.text("shwo")
        bin = Path(sys.executable).parent
        for command in ([bin / "ccl_perf", "--help"], [bin / "ccl_topo", "--help"],
                        [sys.executable, "-m", "ccl.perf", "--help"]):  # fmt: skip
            self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0, command)
        from ccl import perf

        results = perf.run("all_reduce", "--device", "cpu", "--ranks", "2", "-b", "8", "-e", "8",
                           "-n", "2", "--rounds", "1", timeout=60)  # fmt: skip
        self.assertGreater(results["rows"][0]["time_us"], 0)

    def test_versions(self):
        said = subprocess.run([sys.executable, "-m", "ccl", "--json"], capture_output=True, check=True)
        found = json.loads(said.stdout)
        self.assertEqual(found["ccl"], ccl.__version__)
        self.assertEqual(found["loaded libnccl"], {})
        prefix = subprocess.run([sys.executable, "-m", "ccl", "--cmake-prefix"], capture_output=True,
                                text=True, check=True)  # fmt: skip
        self.assertTrue((Path(prefix.stdout.strip()) / "lib/cmake/ccl").is_dir())


def cmake_version():
    folder = Path(ccl.__file__).parent / "lib" / "cmake" / "ccl"
    return (folder / "cclConfigVersion.cmake").read_text().replace("PACKAGE_VERSION", "VERSION")


@unittest.skipUnless(has_library(), "this wheel has no libnccl.so.2")
class Library(unittest.TestCase):
    def test_enable_comes_first(self):
        code = (
            "import ccl, ctypes; path = ccl.enable_nccl(); assert ccl.nccl.is_enabled();"
            "ctypes.CDLL('libnccl.so.2').ncclGetVersion;"  # by its name: what a framework does
            "from ccl import _loaded; assert len(_loaded.paths()) == 1;"
            "assert ccl.enable_nccl() == path; ccl.show_versions()"
        )
        done = in_process(code)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"loaded libnccl: {ccl.nccl.library()} (version 2.32.3)", done.stdout)
        self.assertNotIn("warning", done.stdout)

    def test_another_library_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            other = shutil.copy(ccl.nccl.library(), Path(folder) / "libnccl.so.2")
            code = (
                f"import ctypes; ctypes.CDLL({str(other)!r}); import ccl\n"
                "try: ccl.enable_nccl()\n"
                "except ccl.InvalidUsageError as error: print(error)\n"
                "assert not ccl.nccl.is_enabled()\n"
                "ctypes.CDLL(str(ccl.nccl.library())); ccl.show_versions()\n"
            )
            done = in_process(code)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"another libnccl is loaded already ({other})", done.stdout)
            self.assertIn("warning: 2 libraries named libnccl are loaded", done.stdout)
            self.assertIn(f"loaded libnccl: {other} (version 2.32.3)", done.stdout)

    def test_preloaded_by_the_launcher(self):
        code = "import ccl; assert ccl.nccl.is_enabled(); print('enabled')"
        run = Path(sys.executable).parent / "ccl_run"
        done = subprocess.run([run, sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.stdout, "enabled\n", done.stderr)
        missing = subprocess.run([run, "no-such-program"], capture_output=True, text=True)
        self.assertEqual(missing.returncode, 127)

    def test_a_wheel_without_it_says_so(self):
        done = in_process(
            "import ccl\ntry: ccl.enable_nccl()\nexcept NotImplementedError as e: print(e)",
            CCL_NCCL_LIBRARY="/nowhere/libnccl.so.2",
        )
        self.assertIn("/nowhere/libnccl.so.2, which does not exist", done.stdout)

    @unittest.skipIf(ccl._build.cuda, "the library is for GPUs")
    def test_calls_of_gpu_ranks_on_played_memory(self):
        launch.run("rank_gpu.py", 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
