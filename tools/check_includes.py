#!/usr/bin/env python3
"""Fails if a source uses a function or type of ccl whose header it does not include.

check_includes.py [ROOT]. Builds of the preset `test` compile sources by folders, so each source has the
includes of those before it. The preset `host`, and so `demo.sh`, compiles each alone. The check reads
names and compiles nothing: a name is missing if it stands in no file that the source includes.
"""

import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
ROOTS_OF_INCLUDES = (ROOT / "src", ROOT / "include")
CHECKED = ("src", "benchmarks/ccl_perf", "tools/ccl_topo")  # what CCL_UNITY compiles by folders

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
IGNORED = re.compile(
    r'//[^\n]*|/\*.*?\*/|^\s*#\s*include[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S | re.M
)
WORD = re.compile(r"[A-Za-z_]\w*")
# At the begin of a line: what stands deeper is a member.
TYPE = re.compile(r"^(?:struct|class|union|enum(?: class)?|concept)\s+(\w+)[^;]*?\{", re.M)
FUNCTION = re.compile(r"^[\w\[\]][\w:<>,&*\[\] ]*?[\w>&*\]]\s+[*&]?(\w+)\(", re.M)
NAMESPACE = re.compile(r"^namespace\s+([\w:]+)", re.M)
KEYWORDS = {"alignas", "alignof", "decltype", "noexcept", "operator", "requires", "sizeof", "static_assert"}
# What stands before the name that a declaration introduces, and no keyword that a use may follow.
TYPE_BEFORE = r"(?<!return)(?<!else)(?<!case)(?<!co_return)(?<!throw)"


@cache
def text_of(path):
    return IGNORED.sub(" ", path.read_text())


@cache
def words_of(path):
    return frozenset(WORD.findall(text_of(path)))


@cache
def included_by(path):
    """Returns the files of ccl that `path` names itself."""
    found = []
    for name in INCLUDE.findall(path.read_text()):
        for folder in (*ROOTS_OF_INCLUDES, path.parent):
            if (folder / name).is_file():
                found.append((folder / name).resolve())
                break
    return found


def files_of(path):
    """Returns all files of ccl that `path` includes, directly or not."""
    seen, left = set(), [path]
    while left:
        for other in included_by(left.pop()):
            if other not in seen:
                seen.add(other)
                left.append(other)
    return seen


def declared(headers):
    """Returns the headers of each type and of each function at the level of a namespace, and the namespaces."""
    types, functions, spaces = {}, {}, {"ccl"}
    for header in headers:
        text = text_of(header)
        for pattern, names in ((TYPE, types), (FUNCTION, functions)):
            for name in set(pattern.findall(text)) - KEYWORDS:
                names.setdefault(name, set()).add(header)
        for name in NAMESPACE.findall(text):
            spaces.update(name.split("::"))
    return types, functions, spaces


def uses(text, name, is_function, spaces):
    """True if the text uses the name as that of a function or type of ccl, and does not declare it."""
    if re.search(rf"\b(?:struct|class|enum|union|using|typename|concept|namespace)\s+{name}\b", text):
        return False
    if is_function and re.search(rf"[\w>&*\]]{TYPE_BEFORE}\s+[*&]?{name}\s*[({{=;,)]", text):
        return False
    if is_function and re.search(rf"\b{name}(?:\.|->|\[)", text):  # a variable
        return False
    behind = r"\(" if is_function else r"(?=[\s&*>,{(:])"
    found = re.finditer(rf"(?<![\w.>])(?:(\w+)::)?(?<!\.)(?<!->)\b{name}{behind}", text)
    return any(match.group(1) is None or match.group(1) in spaces for match in found)


def tree_of(path):
    """Returns the folder of CHECKED that has the file; "include" for a public header."""
    name = path.relative_to(ROOT).as_posix()
    return next((folder for folder in CHECKED if name.startswith(folder + "/")), "include")


def main():
    checked = [path.resolve() for folder in CHECKED for path in sorted((ROOT / folder).rglob("*.[ch]pp"))]
    public = [path.resolve() for path in sorted((ROOT / "include").rglob("*.hpp"))]
    types, functions, spaces = declared([*public, *(path for path in checked if path.suffix == ".hpp")])
    missing = []
    for source in checked:
        near = set().union(*map(words_of, files_of(source)))
        for name in sorted(words_of(source) - near):
            for names, is_function in ((types, False), (functions, True)):
                headers = {h for h in names.get(name, ()) if tree_of(h) in ("include", tree_of(source))}
                if headers and source not in headers and uses(text_of(source), name, is_function, spaces):
                    where = " or ".join(str(header.relative_to(ROOT)) for header in sorted(headers))
                    missing.append(f"{source.relative_to(ROOT)} uses {name} and lacks {where}")
    print("\n".join(missing) or f"{len(checked)} files include what they use")
    return 1 if missing else 0


sys.exit(main())
