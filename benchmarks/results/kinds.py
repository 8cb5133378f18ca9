"""Kinds of tables: a function for each makes the text of a table from the results of a machine."""

import re
from collections.abc import Callable
from functools import cache
from statistics import median

import read
from cells import command_of, lines, pair, size, source, us
from read import Json

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "send_recv",
)
load = cache(read.load)
KERNELS = """ccl.bench.gpu.wires_bench ccl rtgs l1s
ccl.bench.gpu.peers_bench
NCCL_ALGO=Ring NCCL_PROTO=LL128 ccl.bench.gpu.wires_bench nccl rgs LIBNCCL 256 1073741824 \\
  Ring/LL128"""


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
