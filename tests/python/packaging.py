#!/usr/bin/env python3
"""Checks names and CMake's variables of the wheels, without building one. Test ccl.python.packaging."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SITE = ROOT / ".deps/python/site"
sys.path[:0] = [str(SITE), str(ROOT / "tools")]
import build_wheel  # noqa: E402


def run(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "tools/build_wheel.py", *arguments], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(SITE)},
    )  # fmt: skip


def printed(*arguments):
    done = run(*arguments, "--print")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Packaging(unittest.TestCase):
    def test_names_have_the_major_version_of_cuda(self):
        self.assertEqual(printed(), {"name": "ccl", "defines": {}})
        for major in ("12", "13"):
            for more in ([], ["--release"]):
                self.assertEqual(printed("--cuda", major, *more)["name"], f"ccl-cu{major}")
        self.assertIn("invalid choice", run("--cuda", "11", "--print").stderr)
        self.assertIn("--release is for", run("--release", "--print").stderr)

    def test_architectures(self):
        gpu = {"CCL_ENABLE_CUDA": "ON", "CCL_BUILD_NCCL": "ON", "CMAKE_CUDA_FLAGS": "--compress-mode=size",
               "CCL_PERF_TYPES": "float;bfloat16", "CCL_PERF_REDOPS": "sum"}  # fmt: skip
        self.assertEqual(printed("--cuda", "13")["defines"], gpu | {"CMAKE_CUDA_ARCHITECTURES": "90-real"})
        release = printed("--cuda", "12", "--release")["defines"]
        self.assertEqual(re.findall(r"\d+", release["CMAKE_CUDA_ARCHITECTURES"]), ["80", "90", "100", "120"])
        self.assertEqual({name: release[name] for name in gpu}, gpu)

    def test_the_release_builds_each_of_them(self):
        text = (ROOT / ".github/workflows/release.yml").read_text()
        majors = [int(m) for m in re.findall(r"\d+", re.search(r"cuda: \[(.*)\]", text)[1].replace(".", " "))[::3]]
        self.assertEqual(majors, list(build_wheel.MAJORS))
        self.assertIn("tools/build_wheel.py --cuda", text)
        self.assertIn("--release", text)
        self.assertRegex(text, r"tools/build_wheel.py --out dist\n")

    def test_another_compiler_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            nvcc = Path(folder) / "nvcc"
            nvcc.write_text("#!/bin/sh\necho Cuda compilation tools, release 12.4, V12.4.131\n")
            nvcc.chmod(0o755)
            before, os.environ["CUDACXX"] = os.environ.get("CUDACXX"), str(nvcc)
            try:
                for major, reason in ((13, "for CUDA 13"), (12, "needs 12.8")):
                    with self.assertRaisesRegex(SystemExit, reason):
                        build_wheel.check_compiler(major)
                nvcc.write_text("#!/bin/sh\necho Cuda compilation tools, release 12.8, V12.8.93\n")
                build_wheel.check_compiler(12)
            finally:
                del os.environ["CUDACXX"]
                if before is not None:
                    os.environ["CUDACXX"] = before

    def test_sizes_have_limits(self):
        with tempfile.TemporaryDirectory() as folder:
            wheel = Path(folder) / "ccl_cu13-1.whl"
            with open(wheel, "wb") as file:
                file.truncate(60 << 20)
            build_wheel.check_size(wheel, 13, release=True)
            build_wheel.check_size(wheel, None, release=False)
            with self.assertRaisesRegex(SystemExit, "the limit is"):
                build_wheel.check_size(wheel, 13, release=False)

    @unittest.skipUnless((SITE / "scikit_build_core").is_dir(), "scikit-build-core is not in .deps/python")
    def test_metadata(self):
        for arguments, name in (([], "ccl"), (["--cuda", "13"], "ccl-cu13")):
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                done = run(*arguments, "--metadata", folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                (made,) = Path(folder).iterdir()
                self.assertRegex(made.name, rf"^{name.replace('-', '_')}-[0-9.]+\.dist-info$")
                self.assertEqual(email.message_from_string((made / "METADATA").read_text())["Name"], name)
                points = (made / "entry_points.txt").read_text()
                for group in ("torch.distributed.backends", "vllm.general_plugins", "sglang.srt.plugins"):
                    self.assertIn(f"[{group}]", points)

    @unittest.skipUnless((SITE / "nanobind").is_dir(), "nanobind is not in .deps/python")
    def test_the_target_of_a_wheel_builds_all_that_is_installed(self):
        own = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["cmake"]["define"]
        for arguments in ([], ["--cuda", "13"]) if shutil.which("nvcc") else ([],):
            with self.subTest(arguments=arguments), tempfile.TemporaryDirectory() as folder:
                defines = own | printed(*arguments)["defines"] | {"nanobind_DIR": str(SITE / "nanobind/cmake")}
                cmake = ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", folder, "-DCMAKE_BUILD_TYPE=Release"]
                configured = subprocess.run(
                    [*cmake, *(f"-D{name}={value}" for name, value in defines.items())], capture_output=True,
                    text=True, env=os.environ | {"PYTHONPATH": str(SITE)},
                )  # fmt: skip
                self.assertEqual(configured.returncode, 0, configured.stderr)
                commands = subprocess.run(
                    ["ninja", "-C", folder, "-t", "commands", "ccl_python"], capture_output=True, text=True, check=True
                ).stdout
                installed = set()
                for script in Path(folder).rglob("cmake_install.cmake"):
                    installed |= set(re.findall(rf'"{re.escape(folder)}/([^"]+)"\)$', script.read_text(), re.MULTILINE))
                made = {file for file in installed if not (Path(folder) / file).exists() and "$" not in file}
                self.assertIn("libccl_runtime.a", made)
                self.assertIn("benchmarks/ccl_perf", made)
                self.assertEqual([], sorted(file for file in made if f"{file} " not in commands))


if __name__ == "__main__":
    unittest.main(verbosity=2)
