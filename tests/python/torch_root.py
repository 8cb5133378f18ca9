#!/usr/bin/env python3
"""Runs the tests of the PyTorch backend under Debian's CPU build of PyTorch, in a root of its own.

Test ccl.python.torch of the long suite. It needs root, apt and the network for the first run, and a
Python 3.12 or later with headers for a wheel that Debian's Python takes.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from wheel import ROOT, check_types, skip, step

TESTED = ("tests/python", "examples/python", "benchmarks/python", "docs/guide")
PROBE = (
    "import os, sys, sysconfig, pip; assert sys.version_info >= (3, 12);"
    "assert os.path.exists(sysconfig.get_path('include') + '/Python.h')"
)


def newer_python():
    for name in ("python3.14", "python3.13", "python3.12", "python3"):
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", PROBE], capture_output=True).returncode == 0:
            return found
    skip("no Python 3.12 or later with headers and pip, which the wheel for Debian's Python needs")


def build_wheel(given):
    """Returns a wheel with the stable ABI, built beside that of ccl.python.wheel."""
    work = given.root.parent / "torch-wheel"
    options = ["--build", given.build, "--work", work, "--types", given.types, "--compiler",
               given.compiler, f"--flags={given.flags}", f"--cuda-root={given.cuda_root}"]  # fmt: skip
    print(step("wheel", newer_python(), Path(__file__).parent / "wheel.py", *options, "--wheel-only"), end="")
    (wheel,) = (work / "dist").glob("ccl-*.whl")
    return wheel


def make_root(root):
    """Makes the folder with PyTorch, if it is not there."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("apt-get"):
        skip("a root of its own for PyTorch needs root and apt")
    if not (root / "opt/env.sh").exists() or not (root / "usr/bin/g++").exists():
        script = ROOT / "benchmarks/python/debian_torch.sh"
        done = subprocess.run(["bash", script, root, "python3-expecttest", "g++"], capture_output=True, text=True)
        if done.returncode != 0:
            skip(f"Debian's PyTorch could not be installed: {(done.stdout + done.stderr)[-300:]}")
    if not (root / "usr/bin/c++").exists():  # as its package does when it is installed
        (root / "usr/bin/c++").symlink_to("g++")
    for kind, place in (("proc", root / "proc"), ("tmpfs", root / "dev/shm")):
        if not os.path.ismount(place):
            subprocess.run(["mount", "-t", kind, kind, place], check=True)


def fill(root, wheel):
    """Puts the wheel and the tests into the root."""
    site, sources = root / "opt/site", root / "opt/src"
    for folder in (site, sources):
        shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    add_libraries(root, site)
    for folder in TESTED:
        shutil.copytree(ROOT / folder, sources / folder)


def add_libraries(root, site):
    """Copies shared libraries of this machine that the package needs and the root lacks, as fmt."""
    folder = root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True, exist_ok=True)
    for file in site.rglob("*.so*"):
        said = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
        for name, path in re.findall(r"(lib(?:fmt|pugixml)\S*) => (/\S+)", said):
            if not (folder / name).exists():
                shutil.copy(path, folder / name)


def check_types_with_torch(root):
    """Checks the package's annotations against those of PyTorch, which the wheel's test lacks."""
    typed = root.parent / "torch-types"
    typed.mkdir(exist_ok=True)
    for name, place in (("torch", root / "usr/lib/python3/dist-packages/torch"), ("ccl", root / "opt/site/ccl")):
        (typed / name).unlink(missing_ok=True)
        (typed / name).symlink_to(place.resolve())
    check_types(root.parent / "torch-mypy", "--no-site-packages", "--python-version", "3.13", paths=[typed.resolve()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--wheel", type=Path, help="a wheel that is there; default: it is built")
    parser.add_argument("--build", type=Path, help="the finished build that a wheel is made from")
    parser.add_argument("--types", default="all")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--flags", default="-O2 -DNDEBUG")
    parser.add_argument("--cuda-root", default="")
    given = parser.parse_args()
    make_root(given.root)
    try:
        fill(given.root, given.wheel or build_wheel(given))
        check_types_with_torch(given.root)
        run = ". /opt/env.sh; export PYTHONDONTWRITEBYTECODE=1; exec python3 -X faulthandler "
        run += "/opt/src/tests/python/run_test.py test_torch.py"
        print(step("test_torch.py", "chroot", given.root, "/bin/bash", "-c", run), end="")
    finally:
        for place in (given.root / "proc", given.root / "dev/shm"):
            subprocess.run(["umount", place])


if __name__ == "__main__":
    main()
