"""Tests of the backend of torch.distributed, with four processes on the CPU."""

import re
import tempfile
import unittest
from pathlib import Path

import launch

try:
    import torch.distributed as dist
except ImportError:
    dist = None
ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/guide/pytorch.md"


def run(script, *arguments, ranks=4):
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port()), "OMP_NUM_THREADS": "1"}
    return launch.run(script, ranks, *arguments, environment=place)


@unittest.skipUnless(dist, "PyTorch is not installed")
class Torch(unittest.TestCase):
    def test_reductions(self):
        run("rank_torch.py", "reductions")

    def test_movements(self):
        run("rank_torch.py", "movements")

    def test_one_rank_and_three(self):
        for ranks in (1, 3):
            for case in ("reductions", "movements"):
                run("rank_torch.py", case, ranks=ranks)

    def test_layouts_and_bad_arguments(self):
        run("rank_torch.py", "layouts")

    def test_messages_tags_and_any_source(self):
        run("rank_torch.py", "messages")

    def test_works_futures_and_coalescing(self):
        run("rank_torch.py", "works")

    def test_groups(self):
        run("rank_torch.py", "groups")

    def test_functional_collectives(self):
        run("rank_torch.py", "functional")

    def test_gradients_of_training(self):
        run("rank_torch.py", "training")

    def test_a_late_rank_is_named(self):
        for case in ("late", "late_message", "late_barrier", "late_gradients"):
            with self.subTest(case=case):
                run("rank_torch.py", case)

    def test_abort_ends_waits(self):
        run("rank_torch.py", "abort")

    def test_name_of_another_vendor_is_left_alone(self):
        import ccl.torch

        self.assertIn("ccl_comm", dist.Backend.backend_list)
        self.assertNotIn("ccl", dist.Backend.backend_list)
        ccl.torch.register()  # a second time

    def test_examples(self):
        for example in sorted((ROOT / "examples/python").glob("*.py")):
            with self.subTest(example=example.name):
                run(example)

    def test_blocks_of_the_page_run(self):
        blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
        self.assertGreater(len(blocks), 2)
        for number, block in enumerate(blocks, 1):
            with self.subTest(block=number), tempfile.TemporaryDirectory() as folder:
                script = Path(folder) / "block.py"
                script.write_text(block)
                run(script)


if __name__ == "__main__":
    unittest.main(verbosity=2)
