#!/usr/bin/env python3
"""Writes the table of measured compositions that a test compares with the cost model's order.

measured.py            # prints it
measured.py --update   # writes tests/detail/choose/measured.txt
measured.py --check    # fails if that file is another

A row has the compositions of one operation, size and run: those of the suite `kernels`, each with
its best plan, and of the suites `sweep_*`, each by ccl_perf with the plan that it has by default.
"""

import argparse
import sys
from pathlib import Path
from statistics import median

import read

TABLE = Path(__file__).resolve().parents[2] / "tests/detail/choose/measured.txt"
Row = tuple[str, str, str, int, int]  # machine, run, operation, ranks, bytes


def rows() -> dict[Row, dict[str, float]]:
    found: dict[Row, dict[str, float]] = {}
    for machine in read.machines():
        for suite in read.load(machine).values():
            for case in suite.cases:
                if suite.name == "kernels" and case["lib"] == "ccl" and case["ok"]:
                    key = (machine, "kernels", case["op"], case["gpus"], case["bytes"])
                    name, us = f"{case['algo']}/{case['proto']}", case["us"]
                elif suite.name.startswith("sweep_"):
                    run = suite.run
                    key = (machine, "sweep", run["collective"], run["ranks"], case["bytes"])
                    name, us = case["composition"], median(case["us"]["ccl"])
                else:
                    continue
                times = found.setdefault(key, {})
                times[name] = min(us, times.get(name, us))
    return {key: times for key, times in sorted(found.items()) if len(times) > 1}


def table() -> str:
    lines = ["# machine run operation ranks bytes, and us of each composition; by measured.py"]
    for key, times in rows().items():
        cells = [f"{name} {us:g}" for name, us in sorted(times.items())]
        lines.append(" ".join([*map(str, key), *cells]))
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = table()
    if options.update:
        TABLE.write_text(text)
    elif options.check:
        if TABLE.read_text() != text:
            print(f"{TABLE} is not that of the results; run {Path(__file__).name} --update")
            return 1
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
