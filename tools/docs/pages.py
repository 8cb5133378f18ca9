"""What all scripts of this folder need: the Markdown pages, their fences, links and headings."""

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Made by build_site.py; absent from the sources.
GENERATED = {"docs/reference/names.md", "docs/api/index.html"}
SKIPPED_FOLDERS = re.compile(r"^(build.*|install|site|\..*|__pycache__|node_modules)$")


def skip(reason):
    """Ends a test that lacks a tool: skipped, or failed where CI requires all tools."""
    if os.environ.get("CCL_REQUIRE_DOCS"):
        print(f"CCL_REQUIRE_DOCS is set, and {reason}")
        sys.exit(1)
    print(f"SKIP: {reason}")
    sys.exit(0)


def finish(problems, checked):
    """Prints the problems of a test and ends it."""
    for problem in problems:
        print(problem)
    print(f"{checked}; {len(problems)} problems")
    sys.exit(1 if problems else 0)


def files(root, suffixes, folders=(".",)):
    """Paths below `root` with one of `suffixes`, without build folders, in a fixed order."""
    found = []
    for folder in folders:
        for where, subfolders, names in os.walk(root / folder):
            subfolders[:] = sorted(
                s for s in subfolders if not SKIPPED_FOLDERS.match(s) or s == ".github"
            )
            found += [Path(where) / name for name in sorted(names) if name.endswith(suffixes)]
    return found


def markdown(root=ROOT):
    return files(root, (".md",))


@dataclass
class Fence:
    language: str
    line: int  # of the first line of code, from 1
    frame: str  # of the comment before the fence, or ""
    code: list = field(default_factory=list)


FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([\w+-]*)")
FRAME = re.compile(r"^\s*<!--\s*frame:\s*([\w-]+)\s*-->\s*$")


def split(path):
    """The lines outside fences as (number, text), and the fences."""
    text, fences, fence, frame = [], [], None, ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        start = FENCE.match(line)
        if fence is not None:
            if start and start[2].startswith(mark) and line.strip() == start[2]:
                fence = None
            else:
                cut = len(line) - len(line.lstrip()) if line.strip() else 0
                fence.code.append(line[min(cut, indent) :])
        elif start:
            indent, mark = len(start[1]), start[2]
            fence = Fence(start[3], number + 1, frame)
            fences.append(fence)
            frame = ""
        else:
            named = FRAME.match(line)
            frame = named[1] if named else ""
            text.append((number, line))
    return text, fences


INLINE_CODE = re.compile(r"(`+)(.+?)\1")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$")
HTML_LINK = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")


def without_code(line):
    return INLINE_CODE.sub(lambda m: "`" * len(m[0]), line)


def links(path):
    """Targets of all links and pictures, as (line, target)."""
    found = []
    text, _ = split(path)
    # A link's text may go on in the next line: the lines of a paragraph are one string.
    paragraph, starts = "", []
    for number, line in text + [(0, "")]:
        if line.strip():
            starts.append((len(paragraph), number))
            paragraph += without_code(line) + "\n"
            continue
        for pattern in (LINK, HTML_LINK):
            for match in pattern.finditer(paragraph.replace("\n", " ")):
                at = [n for begin, n in starts if begin <= match.start()][-1]
                found.append((at, match[1]))
        paragraph, starts = "", []
    for number, line in text:
        match = REFERENCE.match(line)
        if match:
            found.append((number, match[1]))
    return found


def anchors(path):
    """(anchors of the page, headings whose anchors differ between hosts of repositories and the site)."""
    found, unlike, counts = set(), {}, {}
    text, _ = split(path)
    for _, line in text:
        for match in re.finditer(r"<a\s+(?:id|name)=\"([^\"]+)\"", line):
            found.add(match[1])
        heading = re.match(r"^#{1,6}\s+(.*?)\s*#*\s*$", line)
        if not heading:
            continue
        title = (
            re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").replace("*", "")
        )
        # As hosts of repositories make it, then as Python-Markdown does.
        plain = re.sub(r"[^\w\- ]", "", title.lower())
        hosted = plain.replace(" ", "-")
        ascii_only = (
            re.sub(r"[^\w\s-]", "", title.encode("ascii", "ignore").decode()).strip().lower()
        )
        on_site = re.sub(r"[-\s]+", "-", ascii_only)
        count = counts[hosted] = counts.get(hosted, -1) + 1
        if count == 0 and hosted == on_site:
            found.add(hosted)
        else:
            unlike[f"{hosted}-{count}" if count else hosted] = heading[1]
            unlike[f"{on_site}_{count}" if count else on_site] = heading[1]
    return found, unlike
