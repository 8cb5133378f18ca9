#!/usr/bin/env python3
"""Builds a wheel of the Python package: for CPU ranks, or for the GPUs of one CUDA major version.

    tools/build_wheel.py                      distribution ccl, for CPU ranks
    tools/build_wheel.py --cuda 13            distribution ccl-cu13, to develop with: sm_90 alone
    tools/build_wheel.py --cuda 13 --release  sm_80, sm_90, sm_100 and sm_120

All of them hold the package `ccl`, so an environment has one. docs/internals/packaging.md says why the
names are these.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "ccl"
MAJORS = (12, 13)
DEVELOPMENT = "90-real"
RELEASE = "80-real;90-real;100-real;120"  # with PTX of the last one, for GPUs to come
NEEDS = (12, 8)  # the first toolkit that knows sm_100 and sm_120, and that compresses machine code well
DEVELOPMENT_BYTES, RELEASE_BYTES = 55 << 20, 150_000_000


def plan(cuda, release):
    """Returns the name of the distribution and CMake's variables. Others are as pyproject.toml has them."""
    if cuda is None:
        return {"name": NAME, "defines": {}}
    defines = {
        "CCL_ENABLE_CUDA": "ON",
        "CCL_BUILD_NCCL": "ON",
        "CMAKE_CUDA_ARCHITECTURES": RELEASE if release else DEVELOPMENT,
        "CMAKE_CUDA_FLAGS": "--compress-mode=size",
        "CCL_PERF_TYPES": "float;bfloat16",
        "CCL_PERF_REDOPS": "sum",
    }
    return {"name": f"{NAME}-cu{cuda}", "defines": defines}


def named(project, name):
    """Returns the text of pyproject.toml with another name of the distribution."""
    changed, count = re.subn(rf'(?m)^name = "{NAME}"$', f'name = "{name}"', project)
    if count != 1:
        sys.exit(f'pyproject.toml has {count} lines name = "{NAME}"; the script changes exactly one')
    return changed


def sources(folder, name):
    """Unpacks the source distribution into `folder` and names it. Returns where it is."""
    import scikit_build_core.build

    os.chdir(ROOT)
    archive = folder / scikit_build_core.build.build_sdist(str(folder))
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    unpacked = folder / archive.name.removesuffix(".tar.gz")
    project = unpacked / "pyproject.toml"
    project.write_text(named(project.read_text(), name))
    return unpacked


def check_compiler(cuda):
    """Ends the script if nvcc is not of the CUDA major version that the name says."""
    nvcc = os.environ.get("CUDACXX", "nvcc")
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"nvcc does not run ({error}); set CUDACXX")
    version = tuple(map(int, re.search(r"release (\d+)\.(\d+)", said).groups()))
    if version[0] != cuda:
        sys.exit(f"{nvcc} is of CUDA {version[0]}.{version[1]}, and the wheel is for CUDA {cuda}; set CUDACXX")
    if version < NEEDS:
        sys.exit(f"{nvcc} is of CUDA {version[0]}.{version[1]}, and a wheel for GPUs needs 12.8 or later")


def check_size(wheel, cuda, release):
    size = wheel.stat().st_size
    print(f"{wheel}: {size / 1e6:.1f} MB")
    limit = RELEASE_BYTES if release else DEVELOPMENT_BYTES
    if cuda is not None and size > limit:
        sys.exit(f"{wheel.name} has {size} bytes; the limit is {limit}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuda", type=int, choices=MAJORS, help="CUDA major version; default: CPU ranks")
    parser.add_argument("--release", action="store_true", help="all architectures of a release")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder of the wheel")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--print", action="store_true", help="print the name and CMake's variables as JSON")
    what.add_argument("--metadata", type=Path, help="write only the wheel's metadata, into this folder")
    given = parser.parse_args()
    if given.release and given.cuda is None:
        parser.error("--release is for a CUDA major version: --cuda 13 --release")
    planned = plan(given.cuda, given.release)
    if given.print:
        print(json.dumps(planned))
        return
    out, metadata = given.out.resolve(), given.metadata and given.metadata.resolve()
    with tempfile.TemporaryDirectory() as folder:
        unpacked = sources(Path(folder), planned["name"])
        if metadata:
            import scikit_build_core.build

            os.chdir(unpacked)
            metadata.mkdir(parents=True, exist_ok=True)
            print(scikit_build_core.build.prepare_metadata_for_build_wheel(str(metadata)))
            return
        if given.cuda is not None:
            check_compiler(given.cuda)
        settings = [f"-Ccmake.define.{name}={value}" for name, value in planned["defines"].items()]
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", out, *settings,
             unpacked], check=True,
        )  # fmt: skip
    wheels = sorted(out.glob(f"{planned['name'].replace('-', '_')}-[0-9]*.whl"), key=lambda file: file.stat().st_mtime)
    check_size(wheels[-1], given.cuda, given.release)


if __name__ == "__main__":
    main()
