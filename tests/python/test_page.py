"""Runs the blocks "python" of docs/guide/python.md, each as two ranks."""

import os
import re
import tempfile
import unittest
from pathlib import Path

import launch

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/guide/python.md"
BLOCK = re.compile(r"(<!-- needs: (\w+) -->\n)?```python\n(.*?)```", re.S)
ALONE = ("multiprocessing", "ccl.perf")  # these start processes on their own


class Page(unittest.TestCase):
    def test_blocks_run(self):
        blocks = list(BLOCK.finditer(PAGE.read_text()))
        self.assertGreater(len(blocks), 5)
        for number, block in enumerate(blocks, 1):
            if block[2]:
                print(f"SKIP: block {number} of docs/guide/python.md needs a {block[2]}")
                continue
            with self.subTest(block=number), tempfile.TemporaryDirectory() as folder:
                script = Path(folder) / "block.py"
                script.write_text(block[3])
                ranks = 1 if any(word in block[3] for word in ALONE) else 2
                launch.run(script, ranks, environment={"XDG_CACHE_HOME": folder})


if __name__ == "__main__":
    unittest.main(verbosity=2)
