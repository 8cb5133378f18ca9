#!/usr/bin/env python3
"""Builds the wheel, installs it into a fresh virtual environment, and runs the tests there.

Test ccl.python.wheel. The wheel takes the runtime and the programs of a finished build folder.
Packages come from the wheels that cmake/setup.sh --docs puts into .deps/python, so no network is
needed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
PACKAGES = ROOT / ".deps/python/site"


def skip(reason):
    """A part that is missing is a failure where the suite requires it."""
    if os.environ.get("CCL_REQUIRE_PYTHON"):
        sys.exit(f"missing: {reason}")
    print(f"SKIP: {reason}")
    sys.exit(77)


def step(title, *command, **options):
    begin = time.monotonic()
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    print(f"{title}: {time.monotonic() - begin:.1f} s", flush=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nfailed ({done.returncode}): {' '.join(map(str, command))}")
    return done.stdout


def keep_times(new, old):
    """Gives files that have changed the present time, and the others that of before.

    All files of the archive have one time, by which no build would see a change.
    """
    for file in new.rglob("*"):
        if not file.is_file():
            continue
        before = old / file.relative_to(new)
        if before.is_file() and before.read_bytes() == file.read_bytes():
            shutil.copystat(before, file)
        else:
            os.utime(file)


def unpack_sources(work, environment):
    """Makes the source distribution, and returns the folder that it unpacks to."""
    shutil.rmtree(work / "sdist", ignore_errors=True)
    code = "import sys, scikit_build_core.build as b; b.build_sdist(sys.argv[1])"
    step("sources", sys.executable, "-c", code, work / "sdist", cwd=ROOT, env=environment)
    (archive,) = (work / "sdist").glob("ccl-*.tar.gz")
    old = work / "sources.old"
    shutil.rmtree(old, ignore_errors=True)
    if (work / "sources").exists():
        (work / "sources").rename(old)
    with tarfile.open(archive) as tar:
        tar.extractall(work / "sources")
    keep_times(work / "sources", old)
    shutil.rmtree(old, ignore_errors=True)
    print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB")
    (folder,) = (work / "sources").iterdir()
    return folder


def build_wheel(given):
    """Returns the path of the wheel, which is built from the source distribution."""
    if not (PACKAGES / "scikit_build_core").is_dir() or not (PACKAGES / "nanobind").is_dir():
        skip("scikit-build-core and nanobind are not in .deps/python (cmake/setup.sh --docs)")
    work = given.work
    environment = os.environ | {"PYTHONPATH": str(PACKAGES)}
    shutil.rmtree(work / "dist", ignore_errors=True)
    defines = {
        "CCL_RUNTIME_FROM": given.build,
        "CCL_BUILD_NCCL": "OFF",
        "CCL_BUILD_BENCHMARKS": "OFF",
        "CCL_BUILD_TOOLS": "OFF",
        "CCL_PORTABLE": "OFF",
        "CCL_PCH": "OFF",
        "CCL_PYTHON_TYPES": given.types,
        "CMAKE_CXX_COMPILER": given.compiler,
        "CMAKE_CXX_FLAGS_RELEASE": given.flags,
    }
    if given.cuda_root:
        defines["CUDAToolkit_ROOT"] = given.cuda_root
    settings = [f"-Ccmake.define.{name}={value}" for name, value in defines.items()]
    step(
        "wheel", sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps",
        "--no-index", "--wheel-dir", work / "dist", f"-Cbuild-dir={work / 'cmake'}", *settings,
        unpack_sources(work, environment), env=environment,
    )  # fmt: skip
    (wheel,) = (work / "dist").glob("ccl-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    outside = [n for n in names if not n.startswith(("ccl/", "ccl-"))]
    if outside:
        sys.exit(f"{wheel.name} holds files outside of its package: {outside}")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(names)} files")
    return wheel


def install(wheel, work, wheels):
    """Returns the Python of a fresh virtual environment that holds the wheel and NumPy."""
    shutil.rmtree(work, ignore_errors=True)
    if subprocess.run([sys.executable, "-m", "venv", work], capture_output=True).returncode != 0:
        skip("python3 -m venv does not work (apt-get install python3-venv)")
    python = work / "bin" / "python"
    packages = ["numpy", "ml_dtypes"]
    found = [p for p in packages if list(wheels.glob(f"{p}-*.whl"))]
    if "numpy" not in found:
        skip("NumPy's wheel is not in .deps/python/wheels (cmake/setup.sh --docs)")
    step("install", python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
         "--find-links", wheels, wheel, *found)  # fmt: skip
    return python


def check_types(cache, *options, paths=(), given=("-p", "ccl")):
    """Checks annotations with mypy, by the settings of pyproject.toml: by default the package's."""
    if not (PACKAGES / "mypy").is_dir():
        reason = "mypy is not in .deps/python (cmake/setup.sh --docs)"
        if os.environ.get("CCL_REQUIRE_PYTHON"):
            sys.exit(f"missing: {reason}")
        print(f"not checked: annotations ({reason})")
        return
    step(
        "mypy", sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", cache,
        *options, *given, cwd=cache.parent,
        env=os.environ | {"PYTHONPATH": str(PACKAGES), "MYPYPATH": os.pathsep.join(map(str, paths))},
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="folder of the wheel (default: in the build)")
    parser.add_argument("--types", default="all")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--flags", default="-O2 -DNDEBUG")
    parser.add_argument("--cuda-root", default="")
    parser.add_argument("--wheel-only", action="store_true", help="build it, without the tests")
    given = parser.parse_args()
    given.work = given.work or given.build / "python-wheel"
    wheels = ROOT / ".deps/python/wheels"
    wheel = build_wheel(given)
    if given.wheel_only:
        return
    python = install(wheel, given.work / "venv", wheels)
    check_types(given.work / "mypy", "--python-executable", python)
    check_types(given.work / "mypy", "--python-executable", python, given=(FOLDER / "typed_user.py",))
    # Not the repository's folder, in which the package would be found uncompiled.
    for test in ("test_package.py", "test_ranks.py", "test_interrupt.py", "test_ras.py",
                 "test_page.py", "test_examples.py"):  # fmt: skip
        print(step(test, python, "-I", "-X", "faulthandler", FOLDER / "run_test.py", test), end="")


if __name__ == "__main__":
    main()
