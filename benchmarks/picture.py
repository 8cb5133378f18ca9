#!/usr/bin/env python3
"""Draws results of ccl_perf as SVG: time and bus bandwidth over size, ccl beside NCCL (or MPI).

    picture.py h200x4:all_reduce h200x4:all_gather -o FILE.svg   # suites of benchmarks/results
    picture.py all_reduce.json -o FILE.svg                       # files that ccl_perf --json wrote
    picture.py h200x4 -o docs/pictures/beside_nccl_h200x4.svg    # its suites of the collectives
    picture.py h200x4:default_blocks_all_reduce --speed -o speed.svg

With --speed one panel has the time of the rival's best mode over ccl's, a curve for each
collective. Each limit on thread blocks (ccl_perf --ctas) is a curve. No other package is needed.
"""

import argparse
import json
import math
import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "results"))
import read  # noqa: E402

WIDTH, HEIGHT, LEFT, TOP, GAP, BOTTOM = 520, 300, 70, 46, 90, 60
INK = ["#0b62a4", "#d1495b", "#3a7d44", "#8a5a9e", "#c98b1a", "#4d4d4d", "#1f9e9e", "#9c3d12"]
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "send_recv",
)


def size_text(bytes_):
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= scale:
            return f"{bytes_ / scale:g} {unit}"
    return f"{bytes_:g} B"


def suites_of(names):
    suites = []
    for name in names:
        machine, _, suite = name.partition(":")
        if machine in read.machines():
            there = read.load(machine)
            suites += [there[each] for each in ([suite] if suite else COLLECTIVES) if each in there]
        else:
            suites.append(read.from_perf(json.loads(Path(name).read_text())))
    return suites


def title_of(suites):
    machines = [
        f"{suite.run['ranks']} x "
        f"{suite.run['machine'].get('gpu', suite.run['machine'].get('processor', '?'))}"
        for suite in suites
    ]
    return "; ".join(dict.fromkeys(machines))


def curves_of(suites):
    """{(collective, label): [(bytes, us, busbw)]}"""
    curves = {}
    for suite in suites:
        collective, rival = suite.run["collective"], suite.run.get("rival", "")
        factor = read.bus_factor(collective, suite.run["ranks"])
        for case in suite.cases:
            limit = f", {case['max_ctas']} blocks" if case.get("max_ctas") else ""
            for label, us in (("ccl", read.ccl_us(case)), (rival, read.best_rival(case)[1])):
                if us > 0:
                    curves.setdefault((collective, label + limit), []).append(
                        (case["bytes"], us, case["bytes"] / us / 1e3 * factor)
                    )
    return curves


def panel(out, x0, y0, title, unit, points_of, log_y, label=size_text):
    every = [p for points in points_of.values() for p in points]
    low, high = min(p[0] for p in every), max(p[0] for p in every)
    top = max(p[1] for p in every)
    bottom = min(p[1] for p in every) if log_y else 0
    if log_y:
        bottom, top = 10 ** math.floor(math.log10(bottom)), 10 ** math.ceil(
            math.log10(top * 1.0001)
        )
    else:
        step = 10 ** math.floor(math.log10(top))
        top = math.ceil(top / step * 2) / 2 * step
    span = max(math.log2(high / low), 1)

    def at_x(bytes_):
        return x0 + WIDTH * math.log2(bytes_ / low) / span

    def at_y(value):
        part = math.log(value / bottom) / math.log(top / bottom) if log_y else value / top
        return y0 + HEIGHT * (1 - part)

    out.append(f'<text x="{x0}" y="{y0 - 10}" class="title">{escape(title)}</text>')
    marks = []
    if log_y:
        value = bottom
        while value <= top * 1.01:
            marks.append(value)
            value *= 10
    else:
        marks = [top * i / 5 for i in range(6)]
    for value in marks:
        y = at_y(value)
        out.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + WIDTH}" y2="{y:.1f}" class="grid"/>')
        out.append(f'<text x="{x0 - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    sizes = sorted({p[0] for p in every})
    for bytes_ in sizes[:: max(1, math.ceil(len(sizes) / 8))]:
        x = at_x(bytes_)
        out.append(f'<line x1="{x:.1f}" y1="{y0}" x2="{x:.1f}" y2="{y0 + HEIGHT}" class="grid"/>')
        out.append(
            f'<text x="{x:.1f}" y="{y0 + HEIGHT + 18}" text-anchor="middle">{label(bytes_)}</text>'
        )
    out.append(
        f'<text x="{x0 - 52}" y="{y0 + HEIGHT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 {x0 - 52} {y0 + HEIGHT / 2})">{unit}</text>'
    )
    for n, points in enumerate(points_of.values()):
        ink = INK[n % len(INK)]
        line = " ".join(f"{at_x(b):.1f},{at_y(v):.1f}" for b, v in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{ink}" stroke-width="2"/>')
        out.extend(
            f'<circle cx="{at_x(b):.1f}" cy="{at_y(v):.1f}" r="3" fill="{ink}"/>' for b, v in points
        )


def draw_speed(suites):
    """One panel: the rival's best time over ccl's. Colors follow the light or dark mode."""
    ratios = {}
    for suite in suites:
        points = [
            (case["bytes"], read.best_rival(case)[1] / read.ccl_us(case))
            for case in suite.cases
            if read.ccl_us(case) and read.best_rival(case)[1]
        ]
        if points:
            ratios[suite.run["collective"]] = points
    every = [point for points in ratios.values() for point in points]
    if not every:
        sys.exit("picture.py: no case has both sides")
    low, high = min(p[0] for p in every), max(p[0] for p in every)
    top = math.ceil(max(p[1] for p in every) * 2) / 2
    width, height, left, right, above, below = 860, 440, 64, 40, 92, 52
    inner, tall = width - left - right, height - above - below

    def at_x(bytes_):
        return left + inner * math.log2(bytes_ / low) / math.log2(high / low)

    def at_y(value):
        return above + tall * (1 - value / top)

    light = ["#0b62a4", "#c8374b", "#2f7a3b", "#7d4a96", "#a86f00", "#5a5a5a", "#0f8585"]
    dark = ["#6cb4ee", "#ff8795", "#7fce8b", "#c9a0dc", "#e8b64c", "#bdbdbd", "#5fd3d3"]
    style = [
        ".card{fill:#fff;stroke:#d5d9de}.grid{stroke:#e3e6ea}.one{stroke:#333;stroke-width:1.5}",
        "text{fill:#24292f}.dim{fill:#57606a}",
        *(f".c{n}{{stroke:{ink};fill:{ink}}}" for n, ink in enumerate(light)),
        "@media (prefers-color-scheme: dark){.card{fill:#0d1117;stroke:#30363d}",
        ".grid{stroke:#262c34}.one{stroke:#d0d7de}text{fill:#e6edf3}.dim{fill:#9aa4af}",
        *(f".c{n}{{stroke:{ink};fill:{ink}}}" for n, ink in enumerate(dark)),
        "}",
    ]
    rival = suites[0].run.get("rival", "the rival")
    modes = dict.fromkeys(name for suite in suites for case in suite.cases for name in case["us"])
    among = ", ".join(name for name in modes if name != "ccl")
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f"<title>{escape(rival)}'s time over ccl's, over the message size</title>",
        f'<style>{"".join(style)}</style>',
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" class="card"/>',
        f'<text x="{left}" y="28" font-size="17" font-weight="bold">ccl is this many times as '
        f"fast as {escape(rival)}</text>",
        f'<text x="{left}" y="48" class="dim">{escape(title_of(suites))}; the fastest of '
        f"{escape(rival)}: {escape(among)}; above 1: ccl is faster</text>",
    ]
    for step in range(int(top * 2) + 1):
        y = at_y(step / 2)
        out.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + inner}" y2="{y:.1f}" class="grid"/>'
        )
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{step / 2:g}</text>')
    for bytes_ in sorted({p[0] for p in every}):
        out.append(
            f'<text x="{at_x(bytes_):.1f}" y="{above + tall + 20}" text-anchor="middle">'
            f"{size_text(bytes_)}</text>"
        )
    out.append(
        f'<text x="{left + inner / 2}" y="{height - 12}" text-anchor="middle" class="dim">'
        "message size</text>"
    )
    out.append(
        f'<line x1="{left}" y1="{at_y(1):.1f}" x2="{left + inner}" y2="{at_y(1):.1f}" '
        'class="one"/>'
    )
    at = left
    for n, (name, points) in enumerate(ratios.items()):
        kind = f"c{n % len(light)}"
        line = " ".join(f"{at_x(b):.1f},{at_y(v):.1f}" for b, v in points)
        out.append(f'<polyline points="{line}" class="{kind}" style="fill:none" stroke-width="2"/>')
        out.extend(
            f'<circle cx="{at_x(b):.1f}" cy="{at_y(v):.1f}" r="3.2" class="{kind}"/>'
            for b, v in points
        )
        out.append(f'<circle cx="{at + 5}" cy="68" r="5" class="{kind}"/>')
        out.append(f'<text x="{at + 15}" y="72">{escape(name)}</text>')
        at += 30 + 7.6 * len(name)
    out.append("</svg>")
    return "\n".join(out) + "\n"


def draw(curves, title):
    ops = list(dict.fromkeys(op for op, _ in curves))
    most = max(sum(1 for op_, _ in curves if op_ == op) for op in ops)
    pitch = TOP + HEIGHT + BOTTOM + 18 * most
    width, height = LEFT + 2 * WIDTH + GAP + 30, 30 + pitch * len(ops)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        "<style>.grid{stroke:#ddd}.title{font-size:15px;font-weight:bold}</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" class="title">{escape(title)}</text>',
    ]
    for n, op in enumerate(ops):
        y = 30 + n * pitch + TOP
        mine = {label: points for (op_, label), points in curves.items() if op_ == op}
        panel(
            out,
            LEFT,
            y,
            f"{op}: time",
            "us",
            {label: [(p[0], p[1]) for p in points] for label, points in mine.items()},
            True,
        )
        panel(
            out,
            LEFT + WIDTH + GAP,
            y,
            f"{op}: bus bandwidth",
            "GB/s",
            {label: [(p[0], p[2]) for p in points] for label, points in mine.items()},
            False,
        )
        for k, label in enumerate(mine):
            at = y + HEIGHT + 40 + 18 * k
            out.append(
                f'<rect x="{LEFT}" y="{at - 9}" width="18" height="4" fill="{INK[k % len(INK)]}"/>'
            )
            out.append(f'<text x="{LEFT + 26}" y="{at - 3}">{escape(label)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "results", nargs="+", help="MACHINE, MACHINE:SUITE or a file of ccl_perf --json"
    )
    parser.add_argument("--speed", action="store_true", help="the rival's time over ccl's")
    parser.add_argument("-o", "--output", required=True, help="the SVG file")
    options = parser.parse_args()
    suites = suites_of(options.results)
    curves = curves_of(suites)
    if not curves:
        sys.exit("picture.py: none of the results holds a case that was timed")
    text = draw_speed(suites) if options.speed else draw(curves, title_of(suites))
    Path(options.output).write_text(text)


if __name__ == "__main__":
    main()
