"""Runs the examples in Python that need no PyTorch."""

import importlib.util
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import launch

EXAMPLES = Path(__file__).parent.parent.parent / "examples/python"
MPIRUN = shutil.which("mpirun")


class Examples(unittest.TestCase):
    def run_example(self, *command):
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | allowed)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_actors_grow_and_shrink(self):
        said = self.run_example(sys.executable, EXAMPLES / "actors.py")
        for line in ("3 actors: [5.0, 5.0, 5.0]", "rank 1 is gone; the others are [(0, 2), (1, 2)]",
                     "2 actors: [7.0, 7.0]"):  # fmt: skip
            self.assertIn(line, said)

    @unittest.skipUnless(MPIRUN and importlib.util.find_spec("mpi4py"), "mpirun and mpi4py are not installed")
    def test_ranks_of_mpi(self):
        said = self.run_example(MPIRUN, "--oversubscribe", "-n", "3", sys.executable, EXAMPLES / "with_mpi4py.py")
        self.assertIn("3 ranks of MPI and of ccl have the same sums", said)

    def test_divided_bar(self):
        """That of CuPy, with NumPy in its place."""
        for ranks in (1, 3):
            said = launch.run(EXAMPLES / "with_cupy.py", ranks, "numpy")
            self.assertIn(f"{ranks} ranks have the temperatures of one bar", said[0])

    @unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
    def test_training_with_jax(self):
        said = launch.run(EXAMPLES / "with_jax.py", 2, environment={"JAX_PLATFORMS": "cpu"})
        self.assertIn("2 ranks have the weights of one process", said[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
