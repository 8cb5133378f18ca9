"""Ctrl-C in blocking calls raises KeyboardInterrupt, and ends the calls of all ranks."""

import os
import signal
import tempfile
import threading
import time
import unittest

import launch
from ccl._interrupt import blocking


class Interrupt(unittest.TestCase):
    def test_calls_of_a_communicator(self):
        for call in ("all_reduce", "recv", "barrier", "split"):
            with self.subTest(call):
                print(launch.run("rank_interrupt.py", 4, call)[0], end="")

    def test_a_creation(self):
        results = launch.wait(launch.start("rank_interrupt.py", 4, "in_creation", skip=(3,)))
        self.assertEqual([code for code, _ in results], [0, 0, 0], results)
        self.assertTrue(any("creation: " in said for _, said in results), results)

    def test_a_stream(self):
        self.with_go("in_stream")

    def test_a_handler_of_the_program(self):
        self.with_go("own_handler")

    def test_a_handler_that_calls_the_one_before_it(self):
        launch.run("rank_interrupt.py", 1, "chained")

    def test_a_child_of_a_thread(self):
        launch.run("rank_interrupt.py", 1, "forked_by_a_thread")

    def with_go(self, case):
        """Runs a case in which rank 0 lets others go on."""
        with tempfile.TemporaryDirectory() as folder:
            launch.run("rank_interrupt.py", 4, case, environment={"GO": f"{folder}/go"})

    def test_calls_of_the_gpu_library(self):
        """They run beside the main thread, which a signal reaches."""
        self.assertEqual(blocking(lambda: 7), 7)
        with self.assertRaisesRegex(ValueError, "no"):
            blocking(lambda: (_ for _ in ()).throw(ValueError("no")))
        ended = threading.Event()
        timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            blocking(lambda: ended.wait(60), ended.set)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertTrue(ended.is_set())

    def test_between_calls(self):
        launch.run("rank_interrupt.py", 4, "many_calls")


if __name__ == "__main__":
    unittest.main(verbosity=2)
