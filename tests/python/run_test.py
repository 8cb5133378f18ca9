"""Runs one test file, from an isolated interpreter that does not search its folder."""

import runpy
import sys
from pathlib import Path

folder = Path(__file__).parent
sys.path.insert(0, str(folder))
sys.argv = sys.argv[1:]
runpy.run_path(str(folder / sys.argv[0]), run_name="__main__")
