#!/usr/bin/env python3
"""Makes the tables of docs/validation from the results of this folder.

    tables.py --list
    tables.py --check docs/validation    # fails if a page differs from the results
    tables.py --write docs/validation    # rewrites the tables

A table stands between the lines `<!-- table: NAME -->` and `<!-- end -->`.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from cells import megabytes
from kinds import (
    COLLECTIVES,
    all_of,
    beside,
    bulk,
    by_size,
    fused,
    group,
    kernels,
    kernels_pinned,
    moe,
    pinned,
    seams,
    starts,
    sweep,
)

MARKED = re.compile(r"^(<!-- table: (\S+) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)
TABLES: dict[str, Callable[[], str]] = {}


def table(name: str, make: Callable[[], str]) -> None:
    TABLES[name] = make


for gpus in ("h200x2", "h200x4"):
    table(
        f"perf_{gpus}",
        lambda m=gpus: by_size(
            m,
            {
                name: f"{name},{name}_large" if (m, name) == ("h200x2", "send_recv") else name
                for name in COLLECTIVES
            },
        ),
    )
    table(f"plain_launches_{gpus}", lambda m=gpus: all_of(m, "{}_plain_launches"))
    table(f"pinned_{gpus}", lambda m=gpus: pinned(m))
    table(f"kernels_{gpus}", lambda m=gpus: kernels(m))
    table(f"kernels_pinned_{gpus}", lambda m=gpus: kernels_pinned(m))
    table(f"fused_{gpus}", lambda m=gpus: fused(m))
    table(f"moe_{gpus}", lambda m=gpus: moe(m))
for gpus in ("h200x1", "h200x2", "h200x4"):
    table(f"group_{gpus}", lambda m=gpus: group(m))
    table(f"starts_{gpus}", lambda m=gpus: starts(m))
table(
    "between_h200x4",
    lambda: by_size(
        "h200x4",
        {name: f"between_{name}" for name in ("all_reduce", "all_gather", "reduce_scatter")},
        megabytes,
    ),
)
table("between_h200x2", lambda: by_size("h200x2", {"all_reduce": "between_all_reduce"}, megabytes))
table("five_rounds_h200x2", lambda: all_of("h200x2", "five_rounds_{}"))
table("small_h200x2", lambda: all_of("h200x2", "small_{}"))
table(
    "engine_h200x2",
    lambda: by_size("h200x2", {n: f"engine_{n}" for n in ("all_gather", "all_to_all", "send_recv")}),
)
for when in ("slots_before", "slots"):
    table(
        f"{when}_h200x2",
        lambda when=when: by_size(
            "h200x2", {n: f"{when}_{n}" for n in ("all_gather", "all_to_all", "send_recv")}
        ),
    )
table("sweep_h200x2", lambda: sweep("h200x2"))
for machine in ("h200x2", "h200x4"):
    for limit in ("default", "all"):
        table(
            f"{limit}_blocks_{machine}",
            lambda machine=machine, limit=limit: all_of(machine, limit + "_blocks_{}"),
        )
table("plain_launches_default_h200x4", lambda: all_of("h200x4", "{}_plain_launches_default"))
table("one_process_default_h200x4", lambda: all_of("h200x4", "one_process_default_{}"))
table("one_process_h200x4", lambda: all_of("h200x4", "one_process_{}"))
table("windows_h200x2", lambda: by_size("h200x2", {"all_gather": "all_gather_windows"}))
table(
    "types_h200x2",
    lambda: by_size(
        "h200x2",
        {
            f"{of} {redop}": f"all_reduce_{of}_{redop}"
            for of, redop in (
                ("int32", "min"),
                ("int64", "prod"),
                ("double", "min"),
                ("double", "own"),
                ("int64", "own"),
            )
        },
    ),
)
table("rooted_h200x4", lambda: by_size("h200x4", {"gather": "gather", "scatter": "scatter"}))
table("two_hosts_h200x4", lambda: all_of("h200x4", "two_hosts_{}"))
table("two_hosts_h200x2", lambda: all_of("h200x2", "two_hosts_{}"))
table(
    "one_rank_h200x1",
    lambda: by_size("h200x1", {name: name for name in COLLECTIVES if name != "reduce"}),
)
table("bulk_h200x4", lambda: bulk("h200x4"))
table("beside_h200x1", lambda: beside("h200x1"))
table("seams_h200x2", lambda: seams("h200x2"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--list", action="store_true", help="print the names")
    action.add_argument("--check", type=Path, metavar="FOLDER", help="compare the pages of FOLDER")
    action.add_argument("--write", type=Path, metavar="FOLDER", help="rewrite the pages of FOLDER")
    options = parser.parse_args()
    if options.list:
        print("\n".join(sorted(TABLES)))
        return
    problems, found = [], set()
    for page in sorted((options.check or options.write).glob("*.md")):
        text = page.read_text()
        names = [match[1] for match in MARKED.findall(text)]
        marks = re.findall(r"^<!-- (?:table: .*|end) -->$", text, re.MULTILINE)
        if 2 * len(names) != len(marks):
            problems.append(f"{page}: a table has no <!-- end -->, or an end has no table")
        problems += [f"{page}: no table is called {name}" for name in names if name not in TABLES]
        found.update(names)
        fresh = MARKED.sub(
            lambda match: (
                match[1] + TABLES[match[2]]() + match[3] if match[2] in TABLES else match[0]
            ),
            text,
        )
        if fresh != text and options.write:
            page.write_text(fresh)
        elif fresh != text:
            differ = [
                old[2]
                for old, new in zip(MARKED.finditer(text), MARKED.finditer(fresh), strict=True)
                if old[0] != new[0]
            ]
            problems.append(f"{page}: differs from the results: {', '.join(differ)}")
    if not found:
        problems.append("no page holds a table")
    if problems:
        sys.exit("\n".join([*problems, "run benchmarks/results/tables.py --write docs/validation"]))
    print(f"{len(found)} tables are those of the results")


if __name__ == "__main__":
    main()
