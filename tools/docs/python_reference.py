#!/usr/bin/env python3
"""Reference of the Python package, from the docstrings and signatures in python/ccl.

    python_reference.py            compares docs/reference/python.md with the package, and prints the
                                   difference (test ccl.docs.python). Public functions, classes and
                                   methods without a docstring fail, and so do parameters that a
                                   section "Parameters" names and the signature does not have.
    python_reference.py --update   writes the page
"""

import argparse
import ast
import difflib
import re
import sys
import textwrap
from pathlib import Path

PAGE = "docs/reference/python.md"
HEAD = """# Reference of the Python package

Every public name of `ccl`. A test compares this page with the package;
`tools/docs/python_reference.py --update` writes it. The [guide](../guide/python.md) has examples.
"""
# Listed with their module's name.
MODULES = ("nccl", "topo", "report", "ras", "perf", "vllm", "sglang", "torch.inference", "torch.flashinfer")
problems = []


def public_names(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [item.value for item in node.value.elts]
    return []


def definitions(folder):
    """Definitions of a module's file, by name."""
    found = {}
    for file in sorted(folder.glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                found[file.stem, node.name] = node
    return found


def signature(node, name):
    if isinstance(node, ast.ClassDef):
        init = next((n for n in node.body if getattr(n, "name", "") == "__init__"), None)
        return f"class {name}({arguments(init) if init else ''})"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name}({arguments(node)}){returns}"


def arguments(node):
    text = ast.unparse(node.args)
    return re.sub(r"^(self|cls)(, )?", "", text)


def check_parameters(node, doc, where):
    """Reports parameters of the docstring that the signature lacks."""
    function = node
    if isinstance(node, ast.ClassDef):
        function = next((n for n in node.body if getattr(n, "name", "") == "__init__"), None)
    if function is None or "Parameters\n---" not in doc:
        return
    given = function.args
    names = {a.arg for a in given.posonlyargs + given.args + given.kwonlyargs}
    open_ended = given.kwarg is not None
    section = re.split(r"\n[A-Z]\w+\n-+\n", doc.split("Parameters\n----------\n")[1])[0]
    for line in section.splitlines():
        entry = re.match(r"(\*?\w+(?:, \w+)*) :", line) or re.match(r"(\*\w+) :", line)
        for name in entry[1].split(", ") if entry else ():
            if name.lstrip("*") not in names and not open_ended and not name.startswith("*"):
                problems.append(f"{where}: the signature has no parameter {name}")


def prose(text):
    """reStructuredText of a docstring as Markdown."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return re.sub(r"::\n", ":\n", text)


def body(doc):
    """A docstring of NumPy's form as Markdown."""
    parts = re.split(r"(?:^|\n)([A-Z]\w+)\n-{3,}\n", doc)
    lines = [prose(parts[0].strip()), ""]
    for title, section in zip(parts[1::2], parts[2::2]):
        lines += [f"*{title}*", ""]
        section = section.strip("\n")
        if title == "Examples":
            lines += ["```pycon", section.strip(), "```", ""]
            continue
        for line in section.splitlines():
            if line and not line.startswith(" "):
                name, colon, kind = line.partition(" : ")
                entry = f"`{name}`" + (f" ({prose(kind)})" if colon else "")
                lines.append(f"- {entry}")
            elif line:
                lines.append("  " + prose(line.strip()))
        lines.append("")
    # An entry and its text are one paragraph.
    return re.sub(r"(?m)^(- .*)\n(?=  )", r"\1:\n", "\n".join(lines)).rstrip() + "\n"


def documented(node, name, where, level):
    doc = ast.get_docstring(node) or ""
    if not doc:
        problems.append(f"{where}: no docstring")
    check_parameters(node, doc, where)
    call = signature(node, name)
    if len(call) > 96:
        inside = call[call.index("(") + 1 : call.rindex(")")]
        call = call[: call.index("(") + 1] + "\n" + textwrap.fill(
            inside, 92, initial_indent="    ", subsequent_indent="    ", break_long_words=False
        ) + "\n)" + call[call.rindex(")") + 1 :]  # fmt: skip
    return f"{'#' * level} {name}\n\n```python\n{call}\n```\n\n{body(doc)}"


def members(node, classes):
    """Members of a class, then those of its bases in the package."""
    found = list(node.body)
    for base in node.bases:
        if ast.unparse(base) in classes:
            found += members(classes[ast.unparse(base)], classes)
    return found


def of_class(node, name, where, classes, level=2):
    parts = [documented(node, name, where, level)]
    for member in members(node, classes):
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
            decorators = {ast.unparse(d) for d in member.decorator_list}
            title = f"{name}.{member.name}"
            if "property" in decorators:
                doc = ast.get_docstring(member) or ""
                if not doc:
                    problems.append(f"{title}: no docstring")
                kind = ast.unparse(member.returns) if member.returns else ""
                parts.append(f"{'#' * (level + 1)} {title}\n\nProperty (`{kind}`). {prose(doc)}\n")
            else:
                parts.append(documented(member, title, title, level + 1))
    return "\n".join(parts)


def of_errors(found, names):
    """The exceptions as one table."""
    rows = ["| exception | also | meaning |", "|---|---|---|"]
    for name in names:
        node = found["_errors", name]
        bases = [ast.unparse(b) for b in node.bases if ast.unparse(b) != "Error"]
        also = ", ".join(f"`{b}`" for b in bases)
        rows.append(f"| `{name}` | {also} | {prose(ast.get_docstring(node))} |")
    return "## Exceptions by kind\n\nEach is a subclass of `Error`.\n\n" + "\n".join(rows) + "\n"


def page(root):
    folder = root / "python/ccl"
    found = definitions(folder)
    names = public_names(ast.parse((folder / "__init__.py").read_text()))
    where = {name: (module, name) for module, name in found}
    errors = [n for n in names if where.get(n, ("",))[0] == "_errors" and n != "Error"]
    parts = [HEAD]
    for name in names:
        if name in MODULES or name.startswith("__") or name in errors:
            continue
        key = where.get(name) or ("nccl", "enable")  # enable_nccl
        node = found[key]
        if isinstance(node, ast.ClassDef):
            classes = {n: one for (_, n), one in found.items() if n != "Error"}
            parts.append(of_class(node, name, name, classes))
        else:
            parts.append(documented(node, name, name, 2))
    parts.append(of_errors(found, errors))
    for module in MODULES:
        file = folder / f"{module.replace('.', '/')}.py"
        tree, found = ast.parse(file.read_text()), definitions(file.parent)
        parts.append(f"## Module ccl.{module}\n\n{prose(ast.get_docstring(tree))}\n")
        for name in public_names(tree):
            title = f"ccl.{module}.{name}"
            node = found[file.stem, name]
            if isinstance(node, ast.ClassDef):
                parts.append(of_class(node, title, title, {}, 3))
            else:
                parts.append(documented(node, title, title, 3))
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    root = Path(__file__).resolve().parents[2]
    made = page(root)
    for problem in problems:
        print(problem)
    if given.update:
        (root / PAGE).write_text(made)
        return 1 if problems else 0
    there = (root / PAGE).read_text() if (root / PAGE).exists() else ""
    sys.stdout.writelines(
        difflib.unified_diff(there.splitlines(True), made.splitlines(True), PAGE, "python/ccl")
    )
    if there != made:
        print("run tools/docs/python_reference.py --update")
    return 1 if problems or there != made else 0


if __name__ == "__main__":
    sys.exit(main())
