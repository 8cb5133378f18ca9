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
import weakref
from importlib import metadata
from pathlib import Path

import launch
import numpy as np

import ccl

# Set by the suite, where every part must be there.
REQUIRED = bool(os.environ.get("CCL_REQUIRE_PYTHON"))

def has_library():
    try:
        return bool(ccl.nccl.library())
    except ccl.NotSupportedError:
        return False


def in_process(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30,
        env=os.environ | environment,
    )  # fmt: skip


class Package(unittest.TestCase):
    def test_is_typed_and_complete(self):
        folder = Path(ccl.__file__).parent
        for file in ("py.typed", "_core.pyi", "include/ccl/ccl.hpp", "include/ccl/version.hpp",
                     "lib/libccl_runtime.a", "lib/cmake/ccl/cclConfig.cmake", "bin/ccl_perf",
                     "bin/ccl_ras", "bin/ccl_report", "bin/ccl_topo"):  # fmt: skip
            self.assertTrue((folder / file).exists(), file)
        stub = (folder / "_core.pyi").read_text()
        self.assertIn("class Core", stub)
        self.assertIn(f'VERSION "{ccl.__version__}"', cmake_version())
        for name in ccl.__all__:
            self.assertTrue(getattr(ccl, name) is not None, name)

    def test_notices_of_libraries_that_are_compiled_in(self):
        files = [file for file in metadata.files("ccl") or [] if "licenses" in file.parts]
        text = "".join(file.read_text() for file in files)
        self.assertIn("Apache License", text)
        for name in ("fmt", "nlohmann", "pugixml", "nanobind", "robin-map", "CLI11", "Redistribution"):
            self.assertIn(name, text)

    def test_plug_ins_of_engines_wait_for_their_setting(self):
        for group in ("vllm.general_plugins", "sglang.srt.plugins"):
            (point,) = metadata.entry_points(group=group, name="ccl")
            code = f"import {point.module} as m; m.register(); import sys; print('torch' in sys.modules)"
            for value in ("", "0"):
                done = in_process(code, CCL_INFERENCE=value)
                self.assertEqual(done.stdout, "False\n", done.stderr)
            self.assertIn("CCL_INFERENCE is 'on'", in_process(code, CCL_INFERENCE="on").stderr)
            engine = group.partition(".")[0]
            self.assertIn(f"No module named '{engine}'", in_process(code, CCL_INFERENCE="1").stderr)

    def test_every_code_has_an_exception(self):
        codes = "invalid_argument invalid_usage mismatch bad_setting no_transport no_device_code "
        codes += "out_of_memory over_budget system cuda network refused timed_out peer_lost aborted "
        codes += "not_supported internal overflow not_a_number"
        for code in codes.split():
            made = ccl._errors.create(code, f"rank 1: {code}: text", 1, 2, 3, "h", "shm")
            self.assertIsInstance(made, ccl.Error)
            self.assertEqual(made.code, code)
            self.assertTrue(type(made) is not ccl.InternalError or code == "internal", code)
            again = pickle.loads(pickle.dumps(made))
            self.assertEqual((str(again), again.peer, again.host), (str(made), 2, "h"))
            self.assertEqual(again.code, code)

    def test_pickled_errors_keep_what_was_added(self):
        class Mine(ccl.TimedOutError):
            def __init__(self, name, where):
                super().__init__(f"{name} at {where}", rank=3)

        globals()["Mine"], Mine.__qualname__ = Mine, "Mine"
        made = Mine("stop", "sea")
        made.__notes__ = ["in step 7"]
        again = pickle.loads(pickle.dumps(made))
        self.assertEqual((type(again), str(again), again.rank), (Mine, "stop at sea", 3))
        self.assertEqual(again.__notes__, ["in step 7"])

    def test_ids(self):
        id = ccl.UniqueId.create()
        for given in ("x" * 128, None, 128):
            with self.assertRaisesRegex(TypeError, f"a {type(given).__name__} was given"):
                ccl.UniqueId(given)
        with self.assertRaisesRegex(ccl.InvalidArgumentError, "1024 were given"):
            ccl.UniqueId(np.zeros(128, "int64"))
        with self.assertRaisesRegex(TypeError, "key is b'k', a bytes"):
            ccl.UniqueId.at("127.0.0.1:4711", b"k", rank=1)
        with self.assertRaisesRegex(TypeError, "rank is '0', a str"):
            ccl.UniqueId.at("127.0.0.1:4711", "k", rank="0")
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

    def test_a_block_that_has_finalized(self):
        with ccl.Communicator.create_all(1)[0] as comm:
            comm.finalize()
        with self.assertRaises(ccl.InvalidUsageError):
            comm.finalize()
        with self.assertRaises(ccl.AbortedError), ccl.Communicator.create_all(1)[0] as comm:
            comm.abort("the test ends it")

    def test_a_block_that_is_left_with_an_odd_error(self):
        """Its text is no UTF-8, or cannot be made."""
        import threading

        class Mute(Exception):
            def __str__(self):
                raise KeyError("no text")

        for error, text in ((ValueError(os.fsdecode(b"file \xff")), r"file \udcff"), (Mute(), "without a text")):
            ranks, raised = ccl.Communicator.create_all(2, timeout=20), []

            def leave():
                try:
                    with ranks[1]:
                        raise error
                except type(error) as same:
                    raised.append(same)

            thread = threading.Thread(target=leave)
            thread.start()
            with self.assertRaises(ccl.AbortedError) as ended:
                ranks[0].recv(bytearray(1), 1)
            thread.join()
            self.assertIn(text, str(ended.exception))
            self.assertEqual(raised, [error])

    def test_errors_that_quote_other_bytes_than_utf8(self):
        code = "import ccl\ntry: ccl.Communicator.from_env()\nexcept ccl.BadSettingError as e: print(ascii(str(e)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True,
                              env=os.environb | {b"CCL_TIMEOUT": b"\xff"})  # fmt: skip
        self.assertIn(rb"\xff", done.stdout, done.stderr)

    def test_devices_and_flags_of_other_types(self):
        for device in ("cuda", 0.0):
            with self.assertRaisesRegex(TypeError, f"device is {device!r}"):
                ccl.Communicator(ccl.UniqueId.create(), 0, 1, device=device)
        with self.assertRaisesRegex(ccl.InvalidArgumentError, "device is -1"):
            ccl.Communicator(ccl.UniqueId.create(), 0, 1, device=-1)
        for rank, ranks, text in (("0", 1, "rank is '0', a str"), (0, None, "ranks is None, a NoneType")):
            with self.assertRaisesRegex(TypeError, text):
                ccl.Communicator(ccl.UniqueId.create(), rank, ranks)
        with self.assertRaisesRegex(TypeError, "ranks is '2', a str"):
            ccl.Communicator.create_all("2")
        with self.assertRaisesRegex(TypeError, "id is None, a NoneType"):
            ccl.Communicator(None, 0, 1)
        with self.assertRaisesRegex(TypeError, "flags of functor Sum is a string, '-O3'"):
            ccl.Functor("Sum", "struct Sum;", flags="-O3")
        with self.assertRaisesRegex(TypeError, "a flag of functor Sum is 3, a int"):
            ccl.Functor("Sum", "struct Sum;", flags=[3])
        for given in ({"source": b"struct Sum;"}, {"source": "", "compiler": ["c++"]}):
            with self.assertRaisesRegex(TypeError, f"{list(given)[-1]} of a functor is .*; give a string"):
                ccl.Functor("Sum", **given)
        with self.assertRaisesRegex(ccl.InvalidArgumentError, "cannot be split"):
            ccl.Functor("Sum", "struct Sum;", compiler="c++ '")

    def test_arguments_of_other_types_are_named(self):
        ones = np.ones(4, "float32")
        with ccl.Communicator.from_env() as comm:
            for counts in (4, [4.0], None):
                with self.assertRaisesRegex(TypeError, "^send_counts is .*sequence of integers"):
                    comm.all_to_all_v(ones, counts, [4])
                with self.assertRaisesRegex(TypeError, "^recv_offsets is .*sequence of integers"):
                    comm.all_to_all_v(ones, [4], [4], recv_offsets=counts or "a")
            comm.all_to_all_v(ones, np.array([4]), (4,))
        for name, value, text in (
            ("memory_budget", 10**30, "too large a number"),
            ("name", "a\udcff", "not those of a text"),
        ):
            with self.assertRaisesRegex(ccl.InvalidArgumentError, f"^{name} is .*{text}"):
                ccl.Communicator.from_env(**{name: value})
        with self.assertRaisesRegex(ccl.InvalidArgumentError, "or None for a CPU rank"):
            ccl.Communicator.from_env(device="cpu")
        with self.assertRaisesRegex(TypeError, "a Stream belongs to its process"):
            pickle.dumps(ccl.Stream())

    def test_a_further_interpreter_is_refused_and_the_first_goes_on(self):
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            self.skipTest("this Python has no module for interpreters")
        other = interpreters.create()
        try:
            with self.assertRaisesRegex(Exception, "another interpreter of this process has imported"):
                interpreters.run_string(other, "import ccl")
        finally:
            interpreters.destroy(other)
        with ccl.Communicator.from_env() as comm:
            self.assertEqual(list(comm.all_reduce(np.ones(2))), [1, 1])

    def test_tools(self):
        self.assertIn("cpu", ccl.topo.text("show").lower())
        with self.assertRaisesRegex(ccl.InvalidArgumentError, "there is no shwo"):
            ccl.topo.text("shwo")
        with self.assertRaisesRegex(ccl.InvalidArgumentError, "no file ccl_.*json"):
            ccl.report.text("/nowhere")
        with self.assertRaises(ccl.NetworkError):
            ccl.ras.text("-p", "1")  # nobody listens there
        bin = Path(sys.executable).parent
        for command in ([bin / "ccl_perf", "--help"], [bin / "ccl_topo", "--help"],
                        [bin / "ccl_report", "--help"], [bin / "ccl_ras", "--help"],
                        [bin / "ncclras", "--help"]):  # fmt: skip
            self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0, command)
        from ccl import perf

        results = perf.run("all_reduce", "--device", "cpu", "--ranks", "2", "-b", "8", "-e", "8",
                           "-n", "2", "--rounds", "1", timeout=60)  # fmt: skip
        self.assertGreater(results["rows"][0]["time_us"], 0)

    def test_modules_that_are_programs(self):
        for name in ("perf", "ras", "report", "topo"):
            done = subprocess.run([sys.executable, "-m", f"ccl.{name}", "--help"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(name, dir(ccl) if name != "perf" else ["perf"])
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            ccl.nothing
        done = subprocess.run([sys.executable, "-m", "ccl", "--nccl-library"], capture_output=True, text=True,
                              env=os.environ | {"CCL_NCCL_LIBRARY": "/nowhere/libnccl.so.2"})  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "^python -m ccl: .*/nowhere/libnccl.so.2")

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


class Memory(unittest.TestCase):
    """What keeps the memory of a call."""

    def test_scalars_are_kept(self):
        from ccl import _buffers

        for value in range(1000):
            buffer = _buffers.read(np.float64(value), "data")
            others = [np.full((), -1.0) for _ in range(3)]  # take memory that was freed
            self.assertEqual(ctypes.c_double.from_address(buffer.address).value, value)
            self.assertTrue(buffer.readonly and others)

    def test_an_exporter_may_be_gone(self):
        from ccl import _buffers

        freed = []

        class Array(np.ndarray):
            pass

        class Exporter:
            def __dlpack__(self, **given):
                made = np.arange(1 << 10, dtype="f8").view(Array)
                weakref.finalize(made, freed.append, True)
                return made.__dlpack__()

            def __dlpack_device__(self):
                return (1, 0)

        buffer = _buffers.read(Exporter(), "data")
        self.assertEqual(freed, [])
        self.assertEqual(ctypes.c_double.from_address(buffer.address + 8).value, 1)
        del buffer
        self.assertEqual(freed, [True])

    def test_elements_of_several_lanes_are_refused(self):
        from ccl import _buffers

        class DLTensor(ctypes.Structure):
            _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
                        ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]  # fmt: skip

        memory, shape = (ctypes.c_float * 8)(), (ctypes.c_int64 * 1)(2)

        class Vectors:
            def __init__(self, lanes):
                self.made = DLTensor(
                    ctypes.addressof(memory), (1, 0), 1, 2, 32, lanes, shape, None, 0, None, None
                )

            def __dlpack__(self, **given):
                capsule = ctypes.pythonapi.PyCapsule_New
                capsule.restype = ctypes.py_object
                capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
                return capsule(ctypes.addressof(self.made), b"dltensor", None)

            def __dlpack_device__(self):
                return 1, 0

        scalars = Vectors(1)
        self.assertEqual(_buffers.read(scalars, "send").bytes, 8)
        vectors = Vectors(4)
        with self.assertRaisesRegex(ccl.InvalidArgumentError, "send has vectors of 4 lanes"):
            _buffers.read(vectors, "send")

    def test_the_interface_is_the_instance_s(self):
        from ccl import _buffers

        class Array:  # on the CPU; others of its class are on GPUs
            def __init__(self):
                self.array = np.ones(3)

            @property
            def __cuda_array_interface__(self):
                raise AttributeError("in CPU memory")

            def __dlpack__(self, **given):
                return self.array.__dlpack__(**given)

            def __dlpack_device__(self):
                return (1, 0)

        array = Array()
        buffer = _buffers.read(array, "data")
        self.assertEqual((buffer.address, buffer.device), (array.array.ctypes.data, _buffers.CPU))


# Two ranks, a and b, whose first call has been made, and a stream on which a receives from b.
TWO_RANKS = """
import ccl, numpy as np, threading
a, b = ccl.Communicator.create_all(2, init_timeout=30)
first = threading.Thread(target=b.send, args=(np.ones(1), 0))
first.start()
a.recv(np.zeros(1), 1)
first.join()
stream, box, go = ccl.Stream(), np.zeros(1), threading.Event()
def other():
    go.wait()
    b.send(np.ones(1), 0)
thread = threading.Thread(target=other, daemon=True)
thread.start()
a.recv(box, 1, stream=stream)
"""


class Streams(unittest.TestCase):
    def test_a_long_limit_is_none(self):
        for limit in ("inf", 1e300, 1e10):
            code = f"threading.Timer(0.3, go.set).start(); stream.synchronize(float('{limit}'))"
            done = in_process(f"{TWO_RANKS}{code}; assert box[0] == 1; print('done')")
            self.assertEqual(done.stdout, "done\n", done.stderr)

    def test_a_refused_call_keeps_nothing(self):
        stream = ccl.Stream()
        with ccl.Communicator.create_all(1)[0] as comm:
            data = np.ones(2, "int16")
            if "int16" not in ccl.versions()["reductions on CPU ranks"]:
                with self.assertRaises(ccl.NotSupportedError):
                    comm.all_reduce(data, stream=stream)
                self.assertEqual(stream._kept, [])
            comm.all_gather(data, stream=stream)
            self.assertEqual(len(stream._kept), 1)
            stream.synchronize()
            self.assertEqual(stream._kept, [])

    def test_the_collector_leaves_the_arrays_of_queued_calls(self):
        """A stream that is garbage in a cycle waits for its calls, and its arrays stay until then."""
        import gc
        import threading
        import time

        one, other = ccl.Communicator.create_all(2, timeout=60)
        threads = [threading.Thread(target=c.send_recv, args=(np.ones(1), p, np.ones(1), p))
                   for c, p in ((one, 1), (other, 0))]  # fmt: skip
        for thread in threads:  # connects them
            thread.start()
        for thread in threads:
            thread.join()
        kept = []  # older than the stream, so that a collector that goes by age would clear it first
        stream = ccl.Stream()
        stream._kept, stream.itself = kept, stream
        box = np.zeros(8)
        alive, states = weakref.ref(box), []
        one.recv(box, 1, stream=stream)
        del box, kept, stream

        def send():
            time.sleep(0.3)  # the collector waits for the call
            states.append(alive() is not None)
            other.send(np.ones(8), 0)

        late = threading.Thread(target=send)
        late.start()
        gc.collect()
        late.join()
        self.assertEqual(states, [True])
        self.assertIsNone(alive())

    def test_one_who_waits_leaves_the_arrays_of_later_calls(self):
        """Of two threads that wait, the second ends when another call is queued."""
        import threading

        begun, gates = threading.Semaphore(0), [threading.Event() for _ in range(2)]
        left = iter(gates)

        class Queue:
            kept = []

            def synchronize(self, limit):
                gate = next(left)
                begun.release()
                gate.wait(30)

        stream = ccl.Stream()
        stream._queue = Queue()
        stream._kept.append("the first call's")
        threads = [threading.Thread(target=stream.synchronize) for _ in gates]
        for thread in threads:
            thread.start()
            begun.acquire()
        gates[0].set()
        threads[0].join()
        stream._kept.append("the second call's")
        gates[1].set()
        threads[1].join()
        self.assertEqual(stream._kept, ["the second call's"])

    def test_a_handler_that_raises_leaves_the_arrays_of_queued_calls(self):
        """Out of `synchronize`, and as soon as the call is queued."""
        begin = """
import os, signal, weakref
class Alarm(Exception): pass
def ring(*_): raise Alarm
signal.signal(signal.SIGALRM, ring)
class Core:  # the handler runs as the call returns
    def __init__(self, core): self.core = core
    def __getattr__(self, name): return getattr(self.core, name)
    def messages(self, *given):
        self.core.messages(*given)
        os.kill(os.getpid(), signal.SIGALRM)
queued = np.zeros(1000)
alive = weakref.ref(queued)
"""
        end = """
except Alarm: del queued
assert alive() is not None, "the array of a queued call is gone"
go.set()
b.send(np.full(1000, 3.0), 0)
stream.synchronize()
assert alive() is None or (alive() == 3).all()
print('done')
"""
        waits = """
a.recv(queued, 1, stream=stream)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try: stream.synchronize()"""
        queues = """
a._core = Core(a._core)
try: a.recv(queued, 1, stream=stream)"""
        for case in (waits, queues):
            done = in_process(TWO_RANKS + begin + case + end)
            self.assertEqual(done.stdout, "done\n", done.stderr)

    def test_a_dropped_stream_leaves_the_lock_to_other_ranks(self):
        """Its end waits for its call, which waits for a thread that needs the interpreter's lock."""
        code = "go.set(); del stream; assert box[0] == 1; thread.join(); print('done')"
        done = in_process(TWO_RANKS + code)
        self.assertEqual(done.stdout, "done\n", done.stderr)


@unittest.skipUnless(has_library() or REQUIRED, "this wheel has no libnccl.so.2")
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
        with tempfile.TemporaryDirectory(prefix="with space") as folder:
            link = Path(folder) / "libnccl.so.2"
            link.symlink_to(ccl.nccl.library())
            done = subprocess.run([run, "true"], capture_output=True, text=True,
                                  env=os.environ | {"CCL_NCCL_LIBRARY": str(link)})  # fmt: skip
            self.assertEqual(done.returncode, 1)
            self.assertIn("a space or a colon", done.stderr)

    def test_another_file_that_is_named_is_not_ccl_s(self):
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "libnccl.so.2"
            shutil.copy(ccl._core.__file__, other)
            code = (f"import ctypes, ccl; ctypes.CDLL({str(other)!r})\n"
                    "print(ccl.nccl.is_enabled())")  # fmt: skip
            done = in_process(code, CCL_NCCL_LIBRARY=str(other))
            self.assertEqual(done.stdout, "False\n", done.stderr)

    def test_a_relative_name_is_that_of_a_file_here(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ccl.nccl.library(), Path(folder) / "own.so")
            code = f"import os; os.chdir({folder!r}); import ccl; print(ccl.enable_nccl())"
            done = in_process(code, CCL_NCCL_LIBRARY="own.so")
            self.assertEqual(done.stdout, f"{folder}/own.so\n", done.stderr)

    def test_a_wheel_without_it_says_so(self):
        done = in_process(
            "import ccl\ntry: ccl.enable_nccl()\nexcept NotImplementedError as e: print(e)",
            CCL_NCCL_LIBRARY="/nowhere/libnccl.so.2",
        )
        self.assertIn("/nowhere/libnccl.so.2, which does not exist); unset it", done.stdout)

    def test_another_library_is_refused_by_name(self):
        code = "import ccl; ccl.Communicator(ccl.UniqueId.create(), 0, 1, device=0)"
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "libnccl.so.2"
            other.symlink_to(ccl._core.__file__)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                  env=os.environ | {"CCL_NCCL_LIBRARY": str(other)})  # fmt: skip
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("NotSupportedError", done.stderr)
        self.assertIn("libnccl.so.2, which is not the libnccl.so.2 of ccl", done.stderr)

    def test_a_file_that_is_no_library_is_not_enabled(self):
        code = "import ccl\ntry: ccl.enable_nccl()\nexcept ccl.NotSupportedError as e: print(e)"
        for other, reason in ((__file__, "invalid ELF header"), (ccl._core.__file__, "does not say")):
            done = in_process(code, CCL_NCCL_LIBRARY=other)
            self.assertIn(f"{other}, which is not the libnccl.so.2 of ccl", done.stdout, done.stderr)
            self.assertIn(reason, done.stdout)

    @unittest.skipIf(ccl._build.cuda, "the library is for GPUs")
    def test_calls_of_gpu_ranks_on_played_memory(self):
        launch.run("rank_gpu.py", 2)

    @unittest.skipIf(ccl._build.cuda, "the library is for GPUs")
    @unittest.skipUnless(shutil.which("c++"), "no compiler c++")
    def test_functors_of_gpu_ranks_on_played_memory(self):
        launch.run("rank_gpu_functors.py", 3)

    def test_functors_compile_for_gpus(self):
        from ccl import _kernels

        try:
            _kernels.compiler()
        except ccl.NotSupportedError as error:
            self.skipTest(str(error))
        text = "#include <algorithm>\nstruct Low { %s operator()(%s a, %s b) const { return std::min(a, b); } };"
        for element, type in (("float", "float"), ("f8e4m3", "float"), ("int64", "std::int64_t")):
            functor = ccl.Functor("Low", text % (type, type, type))
            self.assertEqual(_kernels._compiled(functor, element, "sm_90")[:4], b"\x7fELF")
        with self.assertRaisesRegex(ccl.CompileError, "(?s)Low .*elements of half.*sm_90.*functor Low.1.: error"):
            _kernels._compiled(ccl.Functor("Low", "struct Low { nonsense };"), "half", "sm_90")
        with self.assertRaisesRegex(ccl.CompileError, "data members"):
            held = "struct Held { float x; float operator()(float a, float) const { return a; } };"
            _kernels._compiled(ccl.Functor("Held", held), "float", "sm_90")


if __name__ == "__main__":
    unittest.main(verbosity=2)
