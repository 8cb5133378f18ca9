#!/usr/bin/env python3
"""Builds the documentation site: target ccl.docs. Needs no network.

Stages docs/ in the build folder, with files outside docs/ that pages link to, adds
reference/names.md and Doxygen's HTML (site/api), and runs MkDocs.
"""

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import names
import pages

LANGUAGES = {
    ".cpp": "cpp",
    ".hpp": "cpp",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".py": "python",
    ".sh": "sh",
    ".txt": "text",
    ".cmake": "cmake",
    ".json": "json",
    ".yml": "yaml",
    ".cff": "yaml",
    "": "text",
}


class Stage:
    """Copy of docs/ in which every link leads somewhere inside the site."""

    def __init__(self, root, target):
        self.root, self.target, self.done = root, target, set()

    def run(self):
        shutil.rmtree(self.target, ignore_errors=True)
        for path in pages.files(self.root / "docs", ("",)):
            if "frames" not in path.relative_to(self.root / "docs").parts:
                self.add(path)

    def place(self, path):
        """Where the site has a file of the repository, below the staged folder."""
        inside = path.relative_to(self.root).as_posix()
        if inside.startswith("docs/"):
            return inside.removeprefix("docs/")
        if path.is_dir():
            return f"files/{inside}/index.md"
        if path.suffix in (".svg", ".png", ".jpg") or path.suffix == ".md":
            return f"files/{inside}"
        return f"files/{inside}.md"  # a page that shows the source

    def add(self, path):
        place = self.place(path)
        if place in self.done:
            return place
        self.done.add(place)
        target = self.target / place
        target.parent.mkdir(parents=True, exist_ok=True)
        inside = path.relative_to(self.root).as_posix()
        if path.is_dir():
            listed = [
                f"* [{p.name}]({posixpath.relpath(self.add(p), posixpath.dirname(place))})"
                for p in sorted(path.iterdir())
                if p.is_file()
            ]
            target.write_text("\n".join([f"# {inside}", ""] + listed) + "\n", encoding="utf-8")
        elif path.suffix == ".md":
            target.write_text(for_python_markdown(self.relink(path, place)), encoding="utf-8")
        elif place.endswith(".md"):
            text = path.read_text(encoding="utf-8")
            target.write_text(
                f"# {inside}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n",
                encoding="utf-8",
            )
        else:
            shutil.copyfile(path, target)
        return place

    def relink(self, page, place):
        def moved(link):
            if re.match(r"^([a-z][a-z0-9+.-]*:|#)", link):
                return link
            file, mark, anchor = link.partition("#")
            path = (page.parent / unquote(file)).resolve()
            if path == self.root or self.root not in path.parents or not path.exists():
                return link  # of a generated page, or wrong: MkDocs says so
            return (
                posixpath.relpath(self.add(path), posixpath.dirname(place) or ".") + mark + anchor
            )

        found = {target for _, target in pages.links(page)}
        text = page.read_text(encoding="utf-8")
        for link in sorted(found, key=len, reverse=True):
            to = moved(link)
            if to != link:
                text = re.sub(
                    rf"(\]\(\s*<?|\]:\s*<?|(?:href|src)=\"){re.escape(link)}(?=[>)\s\"])",
                    lambda m: m[1] + to,
                    text,
                )
        return text


ITEM = re.compile(r"^(\s*)([*+-]|\d+[.)])(\s+)\S")


def for_python_markdown(text):
    """Lists as Python-Markdown reads them: four spaces a level, an empty line before the first item."""
    out, contents = [], []  # contents: column of the content of each list item that is open
    fence, taken, given = None, 0, 0
    in_paragraph = False  # the line before is text outside lists
    for line in text.split("\n"):
        start = pages.FENCE.match(line)
        indent = len(line) - len(line.lstrip())
        if fence:
            out.append(" " * given + line[min(taken, indent) :] if line.strip() else "")
            if start and start[2].startswith(fence) and line.strip() == start[2]:
                fence = None
            continue
        if not line.strip():
            out.append("")
            in_paragraph = False
            continue
        item = ITEM.match(line)
        ends_items = item or start or not out or not out[-1].strip()
        while contents and indent < contents[-1] and ends_items:
            contents.pop()
        base = contents[-1] if contents else 0
        if item and indent >= base + 4:
            item = None  # a block of code by its indent
        own = 4 * len(contents) + (0 if item else max(0, indent - base))
        if item:
            if in_paragraph:
                out.append("")
            contents.append(len(item[1]) + len(item[2]) + len(item[3]))
        if start:
            fence, taken, given = start[2], indent, own
        in_paragraph = not contents
        out.append(" " * own + line.lstrip())
    return "\n".join(out)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--root", type=Path, default=pages.ROOT)
    options.add_argument("--build", type=Path, required=True, help="the site comes to BUILD/site")
    options.add_argument("--version-header", type=Path, help="the generated ccl/version.hpp")
    options.add_argument(
        "--draft", action="store_true", help="broken links and missing pages are only printed"
    )
    o = options.parse_args()
    root, build = o.root.resolve(), o.build.resolve()
    for tool in ("mkdocs", "doxygen"):
        if not shutil.which(tool):
            sys.exit(f"{tool} was not found: run cmake/setup.sh --docs")
    work = build / "docs"
    staged, site = work / "pages", build / "site"
    Stage(root, staged).run()
    shutil.rmtree(work / "doxygen", ignore_errors=True)
    for warning in names.run_doxygen(root, work / "doxygen", o.version_header):
        print(warning)
    public = names.read(work / "doxygen", root)
    (staged / "reference").mkdir(parents=True, exist_ok=True)
    (staged / "reference/names.md").write_text(names.page(public), encoding="utf-8")
    # Staged, so that MkDocs finds what pages link to.
    shutil.copytree(work / "doxygen/api", staged / "api")
    shutil.copyfile(root / "tools/docs/site.css", staged / "site.css")
    settings = (root / "tools/docs/mkdocs.yml").read_text(encoding="utf-8")
    settings = re.sub(r"^docs_dir:.*$", f"docs_dir: {staged}", settings, flags=re.M)
    settings = re.sub(r"^site_dir:.*$", f"site_dir: {site}", settings, flags=re.M)
    if o.draft:
        settings = settings.replace("strict: true", "strict: false")
    (work / "mkdocs.yml").write_text(settings, encoding="utf-8")
    done = subprocess.run(
        ["mkdocs", "build", "--clean", "--config-file", str(work / "mkdocs.yml")],
        capture_output=True,
        text=True,
    )
    said = [
        l
        for l in done.stderr.splitlines()
        if 'not included in the "nav"' not in l and not l.startswith("  - files/")
    ]
    print("\n".join(said))
    if done.returncode:
        sys.exit("mkdocs failed")
    built = len(list(site.rglob("*.html"))) - len(list((site / "api").rglob("*.html")))
    print(f"{site}/index.html: {built} pages, {len(public)} public names")


if __name__ == "__main__":
    main()
