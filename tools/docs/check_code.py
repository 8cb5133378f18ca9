#!/usr/bin/env python3
"""Compiles the code blocks of all Markdown files.

Test ccl.docs.code (fences "cpp", by the C++ compiler) and ccl.docs.code.gpu (fences "cuda", by nvcc).

A block with `int main` or `#include` is a translation unit. Any other block is compiled inside a
frame, docs/frames/NAME.cpp: the frame of the comment `<!-- frame: NAME -->` before the fence, or
`body`. A frame has one line `// BLOCK`, which the block replaces. Blocks of one page and frame are
compiled together, each in a namespace of its own; if that fails they are compiled one by one.
"""

import argparse
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pages

MARK = re.compile(r"^[ \t]*// BLOCK[ \t]*$", re.M)


def text_of(block, name):
    return f'#line {block.line} "{name}"\n' + "\n".join(block.code) + "\n"


class Frames:
    def __init__(self, folder, cuda):
        self.folder, self.cuda, self.known = folder, cuda, {}

    def get(self, name):
        """(includes, the rest) of a frame, or a text that says what is wrong with it."""
        if name not in self.known:
            path = self.folder / f"{name}.cpp"
            if not path.exists():
                self.known[name] = f"no frame docs/frames/{name}.cpp"
            else:
                text = path.read_text(encoding="utf-8")
                if len(MARK.findall(text)) != 1:
                    self.known[name] = f"docs/frames/{name}.cpp must have one line // BLOCK"
                else:
                    if self.cuda:
                        text = text.replace("<ccl/ccl.hpp>", "<ccl/ccl.cuh>")
                    lines = text.splitlines()
                    last = max(
                        (i for i, l in enumerate(lines) if l.startswith("#include")), default=-1
                    )
                    self.known[name] = (
                        "\n".join(lines[: last + 1]) + "\n",
                        "\n".join(lines[last + 1 :]) + "\n",
                    )
        return self.known[name]

    def unit(self, name, blocks, page):
        includes, rest = self.get(name)
        text = includes
        for i, block in enumerate(blocks):
            inside = MARK.sub(lambda _: text_of(block, page) + '#line 1 "frame"\n', rest)
            if len(blocks) > 1:
                inside = f"namespace block_{i} {{\n{inside}}}\n"
            text += inside
        return text


class Compiler:
    def __init__(self, command, folder, cuda):
        self.command, self.folder, self.cuda, self.numbers = (
            command,
            folder,
            cuda,
            itertools.count(),
        )

    def precompile(self, header, include):
        """g++ takes <ccl/ccl.hpp> from here if it is what a unit includes first: most of the time."""
        if self.cuda:
            return
        target = self.folder / "pch" / header
        target.parent.mkdir(parents=True)
        made = subprocess.run(
            self.command + ["-x", "c++-header", str(include / header), "-o", f"{target}.gch"],
            capture_output=True,
            text=True,
        )
        if made.returncode == 0:
            self.command = self.command[:1] + ["-I", str(self.folder / "pch")] + self.command[1:]
        else:
            print(made.stderr)

    def __call__(self, text):
        """The compiler's messages, or None if it accepts the unit."""
        unit = self.folder / f"unit_{next(self.numbers)}.{'cu' if self.cuda else 'cpp'}"
        unit.write_text(text, encoding="utf-8")
        if self.cuda:
            arguments = ["-ptx", "-o", str(unit.with_suffix(".ptx")), str(unit)]
        else:
            arguments = ["-fsyntax-only", str(unit)]
        done = subprocess.run(self.command + arguments, capture_output=True, text=True)
        return None if done.returncode == 0 else done.stdout + done.stderr


def errors(output):
    lines = [l for l in output.splitlines() if re.search(r"\berror\b", l)] or output.splitlines()
    return "\n".join("    " + l for l in lines[:8])


def units_of(page, name, language, frames):
    """(key, blocks) of a page; `key` is a frame, or None for a block that is a unit itself."""
    groups, problems = [], []
    together = {}
    for block in pages.split(page)[1]:
        if block.language != language:
            continue
        code = "\n".join(block.code)
        if not block.frame and re.search(r"\bint main\b|^\s*#\s*include\b", code, re.M):
            groups.append((None, [block]))
            continue
        frame = block.frame or "body"
        if isinstance(frames.get(frame), str):
            problems.append(f"{name}:{block.line}: {frames.get(frame)}")
        elif re.search(
            r"\btemplate\s*<\s*>|^\s*#\s*(include|define)\b|\bnamespace\s+ccl\b", code, re.M
        ):
            groups.append((frame, [block]))  # would mean another thing inside a namespace
        else:
            if frame not in together:
                together[frame] = []
                groups.append((frame, together[frame]))
            together[frame].append(block)
    return groups, problems


def flags_of(file):
    flags = []
    for line in file.read_text().splitlines():
        kind, _, values = line.partition(": ")
        if kind in ("includes:", "defines:"):
            continue  # an empty list
        if kind not in ("includes", "defines"):
            flags += [line] if line else []
            continue
        for value in filter(None, values.split(";")):
            if kind == "defines":
                flags.append(f"-D{value}")
            elif value != "/usr/include":  # searched anyhow, and last
                flags += ["-isystem", value]
    return flags


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--root", type=Path, default=pages.ROOT)
    options.add_argument("--compiler", default="g++")
    options.add_argument(
        "--flags-file",
        type=Path,
        help="further arguments, one a line; includes: and defines: are lists of CMake",
    )
    options.add_argument("--cuda", action="store_true", help='fences "cuda", by nvcc')
    options.add_argument("--page", help="only pages whose path this regex finds")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--timings", action="store_true")
    o = options.parse_args()
    root = o.root.resolve()
    if not shutil.which(o.compiler):
        pages.skip(f"{o.compiler} was not found")
    command = [o.compiler]
    if o.flags_file:
        command += flags_of(o.flags_file)
    else:
        command += ["-std=c++20", "-I", str(root / "include")]
    frames = Frames(root / "docs/frames", o.cuda)
    problems, jobs, blocks = [], [], 0
    for page in pages.markdown(root):
        name = str(page.relative_to(root))
        if o.page and not re.search(o.page, name):
            continue
        groups, wrong = units_of(page, name, "cuda" if o.cuda else "cpp", frames)
        problems += wrong
        jobs += [(name, frame, group) for frame, group in groups]
        blocks += len(wrong) + sum(len(group) for _, group in groups)
    with tempfile.TemporaryDirectory() as folder:
        compiler = Compiler(command, Path(folder), o.cuda)
        if jobs:
            compiler.precompile("ccl/ccl.hpp", root / "include")

        def compile(job):
            name, frame, group = job
            begin, found = time.time(), []
            unit = lambda some: frames.unit(frame, some, name) if frame else text_of(some[0], name)
            output = compiler(unit(group))
            if output is not None and len(group) > 1:
                together, output = output, None
                for block in group:
                    alone = compiler(unit([block]))
                    if alone is not None:
                        found.append(
                            f"{name}:{block.line}: does not compile in frame {frame}:\n{errors(alone)}"
                        )
                if not found:
                    output = together
            if output is not None:
                what = f"in frame {frame}" if frame else "as a program"
                found.append(f"{name}:{group[0].line}: does not compile {what}:\n{errors(output)}")
            if o.timings:
                print(
                    f"{time.time() - begin:6.2f} s  {name}  {frame or 'program'}  {len(group)} blocks",
                    flush=True,
                )
            return found

        with ThreadPoolExecutor(o.jobs) as pool:
            for found in pool.map(compile, jobs):
                problems += found
    pages.finish(problems, f"{blocks} blocks in {len(jobs)} translation units")


if __name__ == "__main__":
    main()
