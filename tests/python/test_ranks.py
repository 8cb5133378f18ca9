"""Tests with four processes on NumPy buffers."""

import os
import shutil
import unittest

import launch

COMPILER = os.environ.get("CXX", "c++")


class Ranks(unittest.TestCase):
    def test_all_operations_types_and_reductions(self):
        said = launch.run("rank_collectives.py", 4)
        print(said[0], end="")

    def test_one_rank_and_three(self):
        for ranks in (1, 3):
            launch.run("rank_few.py", ranks)

    def test_bad_arguments_are_refused_before_a_rank_waits(self):
        launch.run("rank_faults.py", 4, "arguments")

    def test_ranks_that_disagree(self):
        launch.run("rank_faults.py", 4, "mismatch")

    @unittest.skipUnless(shutil.which(COMPILER.split()[0]), f"no compiler {COMPILER}")
    def test_functors_in_cpp(self):
        launch.run("rank_functors.py", 1, environment={"CXX": COMPILER})

    def test_a_late_rank_is_named(self):
        launch.run("rank_faults.py", 4, "late")

    def test_a_dead_rank_is_named_and_the_others_continue(self):
        results = launch.wait(launch.start("rank_faults.py", 4, "dead"))
        self.assertEqual([code for code, _ in results], [0, 0, 0, -9], results)

    def test_abort_from_a_thread_ends_waits(self):
        launch.run("rank_faults.py", 4, "abort")

    def test_leaving_a_block_with_an_exception_aborts(self):
        launch.run("rank_faults.py", 4, "leave")

    def test_programs_end_without_an_end_of_their_communicator(self):
        for how in ("global", "held", "early", "late", "daemon"):
            with self.subTest(how):
                launch.run("rank_exit.py", 3, how)

    def test_a_call_that_needs_a_rank_that_has_exited_names_it(self):
        launch.run("rank_exit.py", 3, "needed")

    def test_an_exception_that_ends_a_rank_reaches_the_others_at_once(self):
        results = launch.wait(launch.start("rank_exit.py", 3, "exception"))
        self.assertEqual([code for code, _ in results], [0, 1, 0], results)

    def test_a_missing_rank_ends_the_creation(self):
        results = launch.wait(
            launch.start("rank_few.py", 3, environment={"CCL_INIT_TIMEOUT": "2"}, skip=(1,))
        )
        for code, output in results:
            self.assertNotEqual(code, 0)
            self.assertIn("TimedOutError", output)
            self.assertIn("rank 1", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
