#!/usr/bin/env python3
"""Public names of ccl's headers, from Doxygen's XML.

    names.py            compares them with tests/public_names.txt and prints the difference
                        (test ccl.docs.names)
    names.py --update   writes tests/public_names.txt

build_site.py takes `page` for reference/names.md.
"""

import argparse
import difflib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

import pages

LIST = "tests/public_names.txt"
HEAD = (
    "# Public names of the headers, as kind, name and header. A test compares them with the headers;\n"
    "# tools/docs/names.py --update writes this file.\n"
)
SHOWN = {
    "class": "class",
    "struct": "struct",
    "union": "union",
    "concept": "concept",
    "function": "function",
    "variable": "variable",
    "typedef": "type",
    "enum": "enum",
    "define": "macro",
}


@dataclass(frozen=True, order=True)
class Name:
    name: str  # with its namespace and class
    kind: str
    header: str
    anchor: str = ""  # in Doxygen's HTML
    brief: str = ""


def run_doxygen(root, output, version_header=None):
    """Runs Doxygen over the public headers; returns its warnings."""
    if not shutil.which("doxygen"):
        pages.skip("doxygen was not found")
    output.mkdir(parents=True, exist_ok=True)
    version = re.search(r"project\(ccl VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())[1]
    public = root / "include/ccl"
    values = {
        "VERSION": version,
        "OUTPUT": output,
        "INPUT": " ".join(str(p) for p in [public, version_header] if p),
        "EXCLUDE": f"{public}/detail {public}/proto/ll128_pairs.hpp",
        "STRIP": " ".join(
            str(p) for p in [root / "include", version_header and version_header.parents[1]] if p
        ),
    }
    text = (root / "tools/docs/Doxyfile.in").read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    (output / "Doxyfile").write_text(text)
    done = subprocess.run(["doxygen", str(output / "Doxyfile")], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"doxygen failed:\n{done.stdout}{done.stderr}")
    return warnings(done.stderr)


def warnings(text):
    """Doxygen's warnings but for those in which 1.9 takes a concept of `detail` for a function."""
    found = re.split(r"\n(?=/)", text)
    return [w.strip() for w in found if w.strip() and "no uniquely matching" not in w]


def text_of(element):
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip() if element is not None else ""


def header_of(element, root):
    location = element.find("location")
    file = location.get("file", "") if location is not None else ""
    return re.sub(r"^.*?(?=ccl/)", "", file) if "ccl/" in file else file


def is_hidden(name):
    return "detail" in name.split("::") or "@" in name


def read(output, root):
    """All public names of Doxygen's XML in `output`."""
    found = set()
    folder = output / "xml"
    for entry in xml.parse(folder / "index.xml").getroot():
        kind = entry.get("kind")
        if kind not in ("class", "struct", "union", "concept", "namespace", "file"):
            continue
        compound = xml.parse(folder / f"{entry.get('refid')}.xml").getroot().find("compounddef")
        own = compound.findtext("compoundname")
        inside = own if kind != "file" else ""
        if (
            is_hidden(inside)
            or (kind != "file" and not inside.startswith("ccl"))
            or compound.get("prot") == "private"
        ):
            continue
        if kind not in ("namespace", "file"):
            if "<" in own:
                continue  # a specialization has the names of its template
            found.add(
                Name(
                    own,
                    kind,
                    header_of(compound, root),
                    f"{compound.get('id')}.html",
                    text_of(compound.find("briefdescription")),
                )
            )
        for member in compound.iter("memberdef"):
            sort = member.get("kind")
            if sort not in SHOWN or member.get("prot", "public") != "public":
                continue
            # A file lists members of its namespaces, too: only macros are of the file alone.
            if kind == "file" and sort != "define":
                continue
            name = member.findtext("name")
            full = f"{inside}::{name}" if inside else name
            if sort == "define" and (not name.startswith("CCL_") or name.startswith("CCL_DETAIL_")):
                continue
            if (
                is_hidden(full)
                or not name
                or re.search(r"\s", name)
                and not name.startswith("operator")
            ):
                continue
            if name == own.split("::")[-1] or name.startswith("~"):
                continue  # constructors and destructors
            page, _, anchor = member.get("id").rpartition("_1")
            where = header_of(member, root)
            if "detail/" in where:
                continue
            found.add(
                Name(
                    full,
                    SHOWN[sort],
                    where,
                    f"{page}.html#{anchor}",
                    text_of(member.find("briefdescription")),
                )
            )
            if sort == "enum":
                for value in member.iter("enumvalue"):
                    found.add(Name(f"{full}::{value.findtext('name')}", "value", where))
    return found


def lines(names):
    return sorted({f"{n.kind:9} {n.name}  {n.header}" for n in names}, key=lambda l: (l.split()[1:], l))


def page(names):
    """reference/names.md: names at namespace scope with what they are, by header."""
    text = [
        "# Public names",
        "",
        "Find a public name here, then its header and its description.",
        "",
        "The page is generated from the headers. "
        "Members of classes stand in the [reference of the headers](../api/index.html).",
        "",
    ]
    headers = {}
    types = {n.name for n in names if n.kind in ("class", "struct", "union", "concept", "enum")}
    for n in names:
        scope = n.name.rpartition("::")[0]
        if n.kind != "value" and (scope in ("", "ccl") or scope not in types):
            headers.setdefault(n.header, {}).setdefault((n.name, n.kind), n)
    for header in sorted(headers):
        text += [f"## {header}", "", "| name | kind | description |", "|---|---|---|"]
        for (name, kind), n in sorted(headers[header].items()):
            brief = n.brief.replace("|", "\\|").replace("<", "&lt;")
            text.append(f"| [`{name}`](../api/{n.anchor}) | {kind} | {brief} |")
        text.append("")
    return "\n".join(text)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--root", type=Path, default=pages.ROOT)
    options.add_argument("--update", action="store_true")
    o = options.parse_args()
    root = o.root.resolve()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        run_doxygen(root, output)
        now = lines(read(output, root))
    if o.update:
        (root / LIST).write_text(HEAD + "\n".join(now) + "\n")
        print(f"{LIST}: {len(now)} names")
        return
    listed = (
        [l for l in (root / LIST).read_text().splitlines() if l and not l.startswith("#")]
        if (root / LIST).exists()
        else []
    )
    difference = [
        l
        for l in difflib.unified_diff(listed, now, LIST, "include/ccl", lineterm="", n=0)
        if not l.startswith("@@")
    ]
    if difference:
        print("\n".join(difference))
        print(
            "The public names have changed. If that is meant, run tools/docs/names.py --update and name "
            "the change in CHANGELOG.md."
        )
        sys.exit(1)
    print(f"{len(now)} public names, as listed")


if __name__ == "__main__":
    main()
