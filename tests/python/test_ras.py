"""The health service of this process, as Python's client sees it."""

import json
import os
import time
import unittest

import launch

PORT = launch.free_port()
os.environ["CCL_RAS_ADDR"] = f"127.0.0.1:{PORT}"  # before the first communicator

import ccl  # noqa: E402
import ccl.ras  # noqa: E402


class Ras(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.comms = ccl.Communicator.create_all(2, name="seen")

    def test_text(self):
        state = json.loads(ccl.ras.text("-f", "json"))
        self.assertEqual(state["communicators"][0]["size"], 2)
        self.assertIn("Job summary", ccl.ras.text("-v"))

    def test_events_have_no_end_and_are_refused_as_text(self):
        for given in ("-m", "-m=all", "-vm", "--monitor", "--mon=trace"):
            with self.assertRaisesRegex(ccl.InvalidArgumentError, r"ccl\.ras\.events"):
                ccl.ras.text(given)

    def test_events_end_at_their_limit(self):
        begin = time.monotonic()
        list(ccl.ras.events(timeout=1))
        self.assertLess(time.monotonic() - begin, 20)
        self.assertGreater(time.monotonic() - begin, 0.9)

    def test_events_come_one_by_one(self):
        events = ccl.ras.events(timeout=60)
        more = []
        try:
            import threading

            def create():
                time.sleep(1)
                more.extend(ccl.Communicator.create_all(3, name="more"))

            threading.Thread(target=create).start()
            self.assertTrue(next(events))
        finally:
            events.close()

    def test_nobody_answers(self):
        with self.assertRaises(ccl.NetworkError):
            list(ccl.ras.events("-p", "1"))
        with self.assertRaises(ccl.TimedOutError):
            ccl.ras.text(timeout=1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
