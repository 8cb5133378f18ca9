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
import textwrap
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from statistics import median

import read
from read import Json, Suite

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "send_recv",
)
MARKED = re.compile(r"^(<!-- table: (\S+) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)
load = cache(read.load)
TABLES: dict[str, Callable[[], str]] = {}


def table(name: str, make: Callable[[], str]) -> None:
    TABLES[name] = make


def size(bytes_: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ % scale == 0 and bytes_ >= scale:
            return f"{bytes_ // scale} {unit}"
    return f"{bytes_:,}" if bytes_ >= 1024 else f"{bytes_} B"


def us(value: float) -> str:
    """Three digits: 2.09, 22.6, 287."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}" if value > 0 else ""


def pair(case: Json | None) -> str:
    if case is None:
        return ""
    rival = us(read.best_rival(case)[1])
    return us(read.ccl_us(case)) + (f" ({rival})" if rival else "")


def lines(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    out += ["| " + " | ".join(row) + " |" for row in rows]
    return re.sub(r"  +", " ", "\n".join(out)) + "\n"


def megabytes(bytes_: int) -> str:
    return f"{bytes_ / 1e6:.1f} MB"


def command_of(suite: Suite) -> str:
    return re.sub(r" --(json|timeout|limit) \S+", "", suite.run["command"])


def source(machine: str, suites: list[Suite], command: str = "") -> str:
    """Machine, NCCL's version, dates, commits and the command of a table."""
    command = command or command_of(suites[0])
    runs = [suite.run for suite in suites]
    facts = [f"{machine[-1]} H200"]
    facts += sorted({run["rival"] for run in runs if run.get("rival")})
    facts += sorted({run["date"][:10] for run in runs if run.get("date")})
    facts.append("commit " + ", ".join(sorted({run["commit"] for run in runs})))
    folded = "\n".join(
        textwrap.fill(
            line, 98, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        ).replace("\n", " \\\n")
        for line in command.splitlines()
    )
    return f"\n{', '.join(facts)}. To repeat:\n\n```sh\n{folded}\n```\n"


def by_size(machine: str, names: dict[str, str], label: Callable[[int], str] = size) -> str:
    """A row for each size, a column for each of `names`: heading to suites, separated by commas."""
    there = load(machine)
    used = [there[name] for text in names.values() for name in text.split(",")]
    columns = {}
    for heading, text in names.items():
        columns[heading] = {
            label(case["bytes"]): case for name in text.split(",") for case in there[name].cases
        }
    sizes = sorted({case["bytes"] for column in columns.values() for case in column.values()})
    labels = dict.fromkeys(label(bytes_) for bytes_ in sizes)
    rows = ([text, *(pair(column.get(text)) for column in columns.values())] for text in labels)
    command = command_of(used[0])
    command = re.sub(r" -d \S+ -o \S+", " -d TYPE -o REDOP", command)
    if len({suite.run["collective"] for suite in used}) > 1:
        command = command.replace(used[0].run["collective"], "COLLECTIVE", 1)
    return lines(["size", *columns], rows) + source(machine, used, command)


def all_of(machine: str, pattern: str) -> str:
    return by_size(machine, {name: pattern.format(name) for name in COLLECTIVES})


def pinned(machine: str) -> str:
    there = load(machine)
    used, rows = [], []
    for op, algo, proto in (
        (op, algo, proto)
        for op in ("all_reduce", "all_gather", "reduce_scatter")
        for algo in ("ring", "tree")
        for proto in ("ll", "ll128", "simple")
    ):
        suite = there.get(f"pinned_{op}_{algo}_{proto}")
        if suite is None:
            continue
        used.append(suite)
        cells = (
            f"{size(case['bytes'])}: {us(read.ccl_us(case))}, "
            f"{read.best_rival(case)[1] / read.ccl_us(case):.2f}"
            for case in suite.cases
        )
        rows.append((f"{op} {algo} {proto}", "; ".join(cells)))
    return lines(("composition", "size: us of ccl, NCCL's time over ccl's"), rows) + source(
        machine, used, "benchmarks/pinned.sh build-cuda/benchmarks/ccl_perf FOLDER"
    )


def kernel_cases(machine: str, lib: str, op: str) -> list[Json]:
    cases = load(machine)["kernels"].cases
    return [case for case in cases if case["lib"] == lib and case["op"] == op and case["us"] > 0]


def kernels(machine: str) -> str:
    ops = ("all_reduce", "all_gather", "reduce_scatter")
    best: dict[tuple[str, str, int], Json] = {}
    for lib in ("ccl", "nccl"):
        for op in ops:
            for case in kernel_cases(machine, lib, op):
                key = (lib, op, case["bytes"])
                if key not in best or case["us"] < best[key]["us"]:
                    best[key] = case
    rows = []
    for bytes_ in sorted(
        {
            key[2]
            for key in best
            if all((lib, op, key[2]) in best for op in ops for lib in ("ccl", "nccl"))
        }
    ):
        row = [size(bytes_)]
        for op in ops:
            case = best["ccl", op, bytes_]
            row += [
                f"{us(case['us'])} {case['algo']} {case['proto']}",
                us(best["nccl", op, bytes_]["us"]),
            ]
        rows.append(row)
    head = ["size", *(text for op in ops for text in (op, "NCCL"))]
    return lines(head, rows) + source(machine, [load(machine)["kernels"]], KERNELS)


def kernels_pinned(machine: str) -> str:
    mine: dict[tuple[str, int], float] = {}
    nccl: dict[tuple[str, int], float] = {}
    for case in kernel_cases(machine, "ccl", "all_reduce"):
        key = (f"{case['algo']}/{case['proto']}", case["bytes"])
        mine[key] = min(case["us"], mine.get(key, case["us"]))
    for case in kernel_cases(machine, "nccl", "all_reduce"):
        nccl[case["label"], case["bytes"]] = case["us"]
    both = mine.keys() & nccl.keys()
    sizes = sorted({bytes_ for _, bytes_ in both})
    names = [f"{algo}/{proto}" for algo in ("Ring", "Tree") for proto in ("LL", "LL128", "Simple")]
    rows = (
        [
            name,
            *(f"{nccl[name, b] / mine[name, b]:.2f}" if (name, b) in both else "" for b in sizes),
        ]
        for name in names
    )
    return lines(["all_reduce", *map(size, sizes)], rows) + source(
        machine, [load(machine)["kernels"]], KERNELS
    )


KERNELS = """ccl.bench.gpu.wires_bench ccl rtgs l1s
ccl.bench.gpu.peers_bench
NCCL_ALGO=Ring NCCL_PROTO=LL128 ccl.bench.gpu.wires_bench nccl rgs LIBNCCL 256 1073741824 \\
  Ring/LL128"""


def fused(machine: str) -> str:
    suite = load(machine)["fused"]
    times: dict[tuple[int, str], list[float]] = {}
    for case in suite.cases:
        times.setdefault((case["rows"], case["side"]), []).append(case["us"])
    sides = (
        "ccl OneShot",
        "ccl TwoShot",
        "ccl OneShot fp8",
        "ccl TwoShot fp8",
        "nccl",
        "nccl windows",
    )
    rows = []
    for count in sorted({key[0] for key in times}):
        middle = [median(times[count, side]) for side in sides]
        kib = count * 7168 * 2 // 1024
        rows.append(
            [f"{count} ({kib} KiB)", *map(us, middle), f"{min(middle[4:]) / min(middle[:2]):.2f}"]
        )
    head = (
        "rows of 7168 bf16",
        "OneShot",
        "TwoShot",
        "OneShot, fp8",
        "TwoShot, fp8",
        "NCCL and a kernel: plain",
        "windows",
        "best over best",
    )
    return lines(head, rows) + source(machine, [suite])


def group(machine: str) -> str:
    suite = load(machine)["group"]
    kinds = list(dict.fromkeys(case.get("of", "compositions") for case in suite.cases))
    rows = []
    for bytes_ in sorted({case["bytes"] for case in suite.cases}):
        row = [size(bytes_)]
        for kind in kinds:
            for case in suite.cases:
                if case["bytes"] == bytes_ and case.get("of", "compositions") == kind:
                    row += [us(case["apart_us"]), us(case["group_us"])]
        rows.append(row)
    head = ["size", *(text for kind in kinds for text in (f"{kind}: one by one", "group"))]
    return lines(head, rows) + source(machine, [suite])


def moe(machine: str) -> str:
    suite = load(machine)["moe"]
    rows = (
        (
            str(case["tokens"]),
            f"{case['arrived_mib']:.2f} MiB",
            us(case["dispatch_us"]),
            us(case["combine_us"]),
            us(case["both_us"]),
        )
        for case in suite.cases
    )
    return lines(("tokens of each rank", "arrived", "dispatch", "combine", "both"), rows) + source(
        machine, [suite]
    )


def bulk(machine: str) -> str:
    suite = load(machine)["bulk"]
    blocks = sorted({case["blocks"] for case in suite.cases})
    best: dict[tuple[str, int, str, int], float] = {}
    for case in suite.cases:
        key = (case["to"], case["bytes"], case["how"], case["blocks"])
        best[key] = max(case["gbs"], best.get(key, 0))
    kinds = sorted(
        {key[:3] for key in best}, key=lambda key: (key[0] != "next", key[1], key[2] != "lanes")
    )
    rows = (
        [f"{to}, {size(bytes_)}, {how}", *(f"{best[to, bytes_, how, b]:.0f}" for b in blocks)]
        for to, bytes_, how in kinds
    )
    return lines(["to, size, by", *(f"{b} blocks" for b in blocks)], rows) + source(
        machine, [suite]
    )


def beside(machine: str) -> str:
    suite = load(machine)["beside"]
    rows = (
        (case["meanwhile"], *(f"{case[key]:.1f}" for key in ("call_ms", "launch_ms", "begins_ms")))
        for case in suite.cases
    )
    return lines(
        ("meanwhile", "call, ms", "launch, ms", "until its kernel began, ms"), rows
    ) + source(machine, [suite])


def seams(machine: str) -> str:
    suite = load(machine)["seams"]
    rows = (
        (
            case["proto"],
            size(case["bytes"]),
            us(case["ccl_us"]),
            us(case["by_hand_us"]),
            f"{case['ratio']:.3f}",
        )
        for case in suite.cases
        if "bytes" in case
    )
    return lines(("protocol", "size", "ccl, us", "by hand, us", "ratio"), rows) + source(
        machine, [suite]
    )


def sweep(machine: str) -> str:
    """The fastest composition of each size, and its time."""
    there = load(machine)
    used = [there[f"sweep_{name}"] for name in COLLECTIVES]
    fastest: dict[tuple[str, int], Json] = {}
    for suite in used:
        for case in suite.cases:
            key = (suite.run["collective"], case["bytes"])
            if case["us"]["ccl"] and (
                key not in fastest or read.ccl_us(case) < read.ccl_us(fastest[key])
            ):
                fastest[key] = case
    rows = []
    for bytes_ in sorted({key[1] for key in fastest}):
        cells = (fastest[name, bytes_] for name in COLLECTIVES)
        rows.append(
            [size(bytes_), *(f"{us(read.ccl_us(case))} {case['composition']}" for case in cells)]
        )
    command = command_of(used[0]).replace("all_reduce", "COLLECTIVE", 1)
    return lines(["size", *COLLECTIVES], rows) + source(machine, used, command)


def starts(machine: str) -> str:
    suite = load(machine)["all_reduce"]
    mib = 1 << 20
    rows = (
        (
            start["name"],
            f"{start['create_s']:.3f}",
            f"{start['first_call_s']:.3f}",
            f"{start['leave_s']:.3f}",
            f"{start['create_bytes'] / mib:.0f}",
            f"{start['first_call_bytes'] / mib:.0f}",
        )
        for start in suite.run["starts"]
    )
    return lines(
        (
            "library",
            "creation, s",
            "first call, s",
            "end, s",
            "MiB of each GPU at creation",
            "MiB more at the first call",
        ),
        rows,
    ) + source(machine, [suite])


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
table("clusters_h200x2", lambda: all_of("h200x2", "clusters_{}"))
table(
    "few_blocks_h200x2",
    lambda: by_size(
        "h200x2",
        {n: f"few_blocks_{n}" for n in ("all_reduce", "all_gather", "reduce_scatter", "broadcast")},
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
