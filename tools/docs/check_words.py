#!/usr/bin/env python3
"""Checks spelling (codespell, American English) and the words of cmake/banned_words.txt.

Test ccl.docs.words. Without codespell the banned words alone are checked, and the test is skipped.
"""

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pages

try:
    from re import _parser as regex_parser
except ImportError:  # before Python 3.11
    import sre_parse as regex_parser

FOLDERS = ("include", "src", "tests", "examples", "benchmarks", "docs", "cmake", "tools", "python", ".github")
CPP = (".hpp", ".cuh", ".cpp", ".cu", ".hpp.in", ".cpp.in")
HASH = (".py", ".sh", ".cmake", ".txt", ".yml", ".yaml")
# The list itself, and the page of changes, which names old settings.
EXEMPT = (
    "cmake/banned_words.txt",
    "CHANGELOG.md",
    "tools/docs/codespell_ignore.txt",
    "tests/public_names.txt",
)
TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.S
)


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def parts(path, text):
    """(code, prose) of a file: its text with what belongs to the other part made blank.

    Prose of C++ is comments and string literals, which hold messages and titles of tests."""
    if path.name.endswith(CPP):
        prose = list(blank(text))
        for m in TOKEN.finditer(text):
            line = text.rfind("\n", 0, m.start()) + 1
            if m[0][0] in "/\"" and not text.startswith("#include", line):
                prose[m.start() : m.end()] = m[0]
        return TOKEN.sub(lambda m: blank(m[0]), text), "".join(prose)
    if path.suffix == ".md":
        code, prose = [], []
        outside = dict(pages.split(path)[0])
        for number, line in enumerate(text.splitlines(), 1):
            if number not in outside:
                code.append(line)
                prose.append("")
                continue
            kept, cut = pages.INLINE_CODE.sub(lambda m: blank(m[0]), line), 0
            inline = [m.span() for m in pages.INLINE_CODE.finditer(line)]
            code.append(
                "".join(
                    c if any(a <= i < b for a, b in inline) else " " for i, c in enumerate(line)
                )
            )
            prose.append(kept)
        return "\n".join(code), "\n".join(prose)
    if path.suffix in HASH or path.name == "CMakeLists.txt":
        return "", "\n".join(
            m[0] if (m := re.search(r"(?:^|\s)#(?!include|line).*", l)) else ""
            for l in text.splitlines()
        )
    return "", ""


def needed(tree):
    """Texts of which each match of a parsed regex contains one; empty if there are none.

    Looking for a text is far quicker than running a regex, and most files have none of them."""
    choices, run = [], ""
    for kind, value in [*tree, (None, None)]:
        if kind is regex_parser.LITERAL:
            run += chr(value)
            continue
        if run:
            choices.append([run])
        run, inner = "", []
        if kind is regex_parser.SUBPATTERN:
            inner = needed(value[3])
        elif kind is regex_parser.MAX_REPEAT and value[0] > 0:
            inner = needed(value[2])
        elif kind is regex_parser.BRANCH:
            each = [needed(branch) for branch in value[1]]
            inner = [text for texts in each for text in texts] if all(each) else []
        if inner:
            choices.append(inner)
    return max(choices, key=lambda texts: min(map(len, texts)), default=[])


def entries(path):
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = re.split(r"\s{2,}", line.strip())
        where = re.match(r"(not )?in (.+)", columns[3]) if len(columns) == 4 else None
        if (
            len(columns) not in (3, 4)
            or columns[0] not in ("all", "code", "text", "path")
            or len(columns) == 4
            and not where
        ):
            raise SystemExit(
                f"cmake/banned_words.txt:{number}: not SCOPE  REGEX  REPLACEMENT  [in PATHS]"
            )
        paths = re.compile(where[2]) if where else re.compile("")
        regex = re.compile(columns[1])
        any_case = regex.flags & re.IGNORECASE
        found.append(
            (
                columns[0],
                regex,
                [] if any_case else needed(regex_parser.parse(columns[1])),
                columns[2],
                paths,
                bool(where and where[1]),
            )
        )
    return found


def banned(root, only=None):
    problems, words = [], entries(root / "cmake/banned_words.txt")
    suffixes = CPP + HASH + (".md",)
    files = pages.files(root, suffixes, FOLDERS) + [
        p for p in sorted(root.iterdir()) if p.name.endswith((".md", ".sh", "CMakeLists.txt"))
    ]
    for path in files:
        name = path.relative_to(root).as_posix()
        if name in EXEMPT or (only and not re.search(only, name)):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        code, prose = parts(path, text)
        for scope, regex, some_of, instead, paths, excludes in words:
            if bool(paths.match(name)) == excludes:
                continue
            if scope == "path":
                if regex.search(name):
                    problems.append(f"{name}: name of the file; use: {instead}")
                continue
            searched = {"all": text, "code": code, "text": prose}[scope]
            if some_of and not any(part in searched for part in some_of):
                continue
            for m in regex.finditer(searched):
                line = searched.count("\n", 0, m.start()) + 1
                problems.append(f'{name}:{line}: "{m[0].strip()}"; use: {instead}')
    return problems, len(files)


def misspelled(root):
    paths = (
        [root / f for f in FOLDERS if (root / f).exists()]
        + sorted(root.glob("*.md"))
        + sorted(root.glob("*.sh"))
    )
    done = subprocess.run(
        [
            "codespell",
            "--builtin",
            "clear,rare,en-GB_to_en-US",
            "--ignore-words",
            str(root / "tools/docs/codespell_ignore.txt"),
            "--skip",
            "*.svg,*.xml,*.json,*.jsonl,*/__pycache__/*,*/codespell_ignore.txt,*/banned_words.txt",
            *map(str, paths),
        ],
        capture_output=True,
        text=True,
    )
    return [l.replace(f"{root}/", "") for l in done.stdout.splitlines() if l.strip()]


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--root", type=Path, default=pages.ROOT)
    options.add_argument("--only", help="banned words of files whose path this regex finds")
    o = options.parse_args()
    root = o.root.resolve()
    problems, files = banned(root, o.only)
    has_codespell = shutil.which("codespell")
    if has_codespell and not o.only:
        problems += misspelled(root)
    if not problems and not has_codespell:
        pages.skip("codespell was not found; the banned words were checked, the spelling was not")
    pages.finish(problems, f"{files} files")
