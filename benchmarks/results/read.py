#!/usr/bin/env python3
"""Lists, prints, exports and adds the benchmark results of this folder. The README has the format.

read.py list
read.py show h200x4 all_reduce        # a table
read.py export h200x4 all_reduce      # one JSON document
read.py add h200x4 all_reduce FILE    # FILE: by ccl_perf --json, or lines of ccl.bench.gpu.*
"""

import argparse
import gzip
import json
import math
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

FOLDER = Path(__file__).resolve().parent
PLAN = ("channels", "slot_count", "slot_bytes", "chunk_steps", "slice_steps")
DERIVED = {
    "algbw_gbs",
    "busbw_gbs",
    "best",
    "ratio",
    "time_us",
    "least_us",
    "rival_us",
    "rival_least_us",
    "rounds",
    "iterations",
    "root",
    "wrong",
    "ccl",
    "nccl",
}
Json = dict[str, Any]


@dataclass
class Suite:
    """Cases of one run. `run` says how, when and on what they were measured."""

    name: str
    run: Json = field(default_factory=dict)
    cases: list[Json] = field(default_factory=list)


def machines() -> list[str]:
    return sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))


def load(machine: str) -> dict[str, Suite]:
    suites: dict[str, Suite] = {}
    text = gzip.decompress((FOLDER / f"{machine}.jsonl.gz").read_bytes()).decode()
    for line in text.splitlines():
        values = json.loads(line)
        suite = suites.setdefault(values["suite"], Suite(values["suite"]))
        del values["suite"]
        if "run" in values:
            suite.run = values["run"]
        else:
            suite.cases.append(values)
    return suites


def save(machine: str, suites: dict[str, Suite]) -> None:
    lines: list[Json] = []
    for name in sorted(suites):
        lines.append({"suite": name, "run": suites[name].run})
        lines += ({"suite": name} | case for case in suites[name].cases)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (FOLDER / f"{machine}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def ccl_us(case: Json) -> float:
    """Returns the median of ccl's rounds in us, or 0 if no round ended."""
    return median(case["us"]["ccl"]) if case["us"]["ccl"] else 0.0


def best_rival(case: Json) -> tuple[str, float]:
    """Returns the rival's fastest mode and its median in us, or ("", 0)."""
    modes = [(median(us), name) for name, us in case["us"].items() if name != "ccl" and us]
    us, name = min(modes, default=(0.0, ""))
    return name, us


def bus_factor(collective: str, ranks: int) -> float:
    """Returns bus bandwidth over algorithm bandwidth, as ccl_perf prints them."""
    if ranks == 1:
        return 1.0
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    scaled = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    return (ranks - 1) / ranks if collective in scaled else 1.0


def short(value: float) -> float:
    return float(f"{value:.5g}")


def from_perf(text: Json) -> Suite:
    """Packs a document of ccl_perf. Medians, ratios and bandwidths are left out, as they follow."""
    if text["wrong"] > 0:
        sys.exit("read.py: the run has wrong elements")
    suite = Suite("", {key: value for key, value in text.items() if key not in ("rows", "wrong")})
    for start in suite.run.get("starts", []):
        start.update({key: short(value) for key, value in start.items() if key.endswith("_s")})
    for row in text["rows"]:
        sides = (
            [row["ccl"], *row.get("nccl", [])]
            if "ccl" in row
            else [
                {"name": name, "us": [row[key]] if row.get(key, 0) > 0 else []}
                for name, key in (("ccl", "time_us"), ("rival", "rival_us"))
            ]
        )
        case = {key: value for key, value in row.items() if key not in DERIVED}
        case["plan"] = [row["plan"][key] for key in PLAN]
        case["us"] = {side["name"]: [short(us) for us in side["us"]] for side in sides}
        if any("wall_us" in side for side in sides):
            case["wall_us"] = {
                side["name"]: [short(us) for us in side.get("wall_us", [])] for side in sides
            }
        suite.cases.append(case)
    return suite


def read_run(path: Path) -> Suite:
    text = path.read_text()
    if path.suffix == ".json":
        return from_perf(json.loads(text))
    cases = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if any(case.get("wrong") or case.get("ok") is False for case in cases):
        sys.exit("read.py: the run has wrong elements")
    return Suite("", {}, cases)


def cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def show(suite: Suite) -> None:
    for key, value in suite.run.items():
        print(f"{key}: {json.dumps(value)}")
    rows = []
    for case in suite.cases:
        row = {key: value for key, value in case.items() if key not in ("us", "wall_us")}
        us = case.get("us")
        if isinstance(us, dict):
            us = {name: median(values) if values else math.nan for name, values in us.items()}
        rows.append(row | (us if isinstance(us, dict) else {} if us is None else {"us": us}))
    columns = list(dict.fromkeys(key for row in rows for key in row))
    print("", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), sep="\n")
    for row in rows:
        print("| " + " | ".join(cell(row.get(key, "")) for key in columns) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("list", "show", "export", "add"))
    parser.add_argument("machine", nargs="?", help="h200x4, for example")
    parser.add_argument("suite", nargs="?")
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--commit", help="add: the commit that was measured")
    parser.add_argument("--command", help="add: the command, where FILE does not hold it")
    options = parser.parse_args()
    if options.action == "list":
        for machine in [options.machine] if options.machine else machines():
            for name, suite in load(machine).items():
                command = suite.run.get("command", "")
                print(
                    f"{machine} {name}: {len(suite.cases)} cases, {suite.run.get('commit', '?')}, "
                    f"{command}"
                )
        return
    if not options.suite or (options.action == "add") != bool(options.file):
        parser.error("MACHINE and SUITE are missing, or FILE is missing or one too many")
    if options.action == "add":
        suites = load(options.machine) if options.machine in machines() else {}
        suite = read_run(options.file)
        given = {"commit": options.commit, "command": options.command}
        suite.run |= {key: value for key, value in given.items() if value}
        suites[options.suite] = suite
        save(options.machine, suites)
        return
    suite = load(options.machine)[options.suite]
    if options.action == "show":
        show(suite)
    else:
        print(json.dumps({"suite": suite.name, "run": suite.run, "cases": suite.cases}, indent=1))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
