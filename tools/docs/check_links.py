#!/usr/bin/env python3
"""Checks the links of all Markdown files: files, anchors, named sources, and the site's contents.

Test ccl.docs.links. Needs no network: addresses of other hosts are not opened.
"""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pages

FOLDERS = "include|src|tests|examples|benchmarks|docs|cmake|tools"
NAMED_FILE = re.compile(
    rf"^(?:{FOLDERS})/[\w./-]+\.(?:hpp|cuh|cpp|cu|py|sh|cmake|md|txt|xml|json|svg)$"
)
NAMED_HEADER = re.compile(r"^<(ccl/[\w./]+)>$")


def check(root):
    problems, checked, anchors = [], 0, {}
    found = pages.markdown(root)
    for page in found:
        name = page.relative_to(root)
        for line, target in pages.links(page):
            if re.match(r"^[a-z][a-z0-9+.-]*:", target):
                continue
            checked += 1
            where = f"{name}:{line}: {target}"
            file, _, anchor = target.partition("#")
            if file.startswith("/"):
                problems.append(f"{where}: must be relative")
                continue
            path = (page.parent / unquote(file)).resolve() if file else page
            if root not in path.parents and path != root:
                problems.append(f"{where}: leads out of the repository")
                continue
            if str(path.relative_to(root)) in pages.GENERATED:
                continue
            if not path.exists():
                problems.append(f"{where}: no such file")
                continue
            if anchor and path.suffix == ".md":
                if path not in anchors:
                    anchors[path] = pages.anchors(path)
                known, unlike = anchors[path]
                if anchor in known:
                    continue
                if anchor in unlike:
                    problems.append(
                        f'{where}: the heading "{unlike[anchor]}" has other anchors on the '
                        "site than where the repository is hosted; use letters and spaces "
                        "only, once a page"
                    )
                else:
                    problems.append(f"{where}: no such heading")
        text, _ = pages.split(page)
        for line, content in text:
            for code in pages.INLINE_CODE.findall(content):
                header = NAMED_HEADER.match(code[1])
                if header and header[1] == "ccl/version.hpp":
                    continue
                named = f"include/{header[1]}" if header else code[1]
                if (
                    (header or NAMED_FILE.match(named))
                    and named not in pages.GENERATED
                    and "NAME" not in named
                ):
                    checked += 1
                    if not (root / named).exists():
                        problems.append(f"{name}:{line}: `{code[1]}`: no such file")
    return problems, f"{len(found)} pages, {checked} links and named files"


def contents(root):
    """Every page of docs/ stands in the site's navigation, and everything there is a page."""
    listed = set(
        re.findall(
            r"^\s+-\s.*?([\w/-]+\.(?:md|html))\s*$",
            (root / "tools/docs/mkdocs.yml").read_text(encoding="utf-8"),
            re.M,
        )
    )
    there = {str(p.relative_to(root / "docs")) for p in pages.files(root, (".md",), ("docs",))}
    generated = {g.removeprefix("docs/") for g in pages.GENERATED}
    return [
        f"tools/docs/mkdocs.yml: docs/{p} is not in the navigation" for p in sorted(there - listed)
    ] + [
        f"tools/docs/mkdocs.yml: names docs/{p}, which is no page"
        for p in sorted(listed - there - generated)
    ]


if __name__ == "__main__":
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pages.ROOT
    problems, checked = check(root)
    pages.finish(problems + contents(root), checked)
