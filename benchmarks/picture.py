#!/usr/bin/env python3
"""Draws ccl_perf's JSON files as one SVG: time and bus bandwidth over size, ccl beside NCCL (or MPI).

    picture.py results/h200x4/all_reduce.json ... -o all_reduce.svg

Of rows with several limits on blocks (ccl_perf --ctas) each limit is a curve. No other package is needed.
"""
import argparse
import json
import math
import sys
from html import escape

WIDTH, HEIGHT, LEFT, TOP, GAP, BOTTOM = 520, 300, 70, 46, 90, 60
INK = ["#0b62a4", "#d1495b", "#3a7d44", "#8a5a9e", "#c98b1a", "#4d4d4d", "#1f9e9e", "#9c3d12"]


def size_text(bytes_):
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= scale:
            return f"{bytes_ / scale:g} {unit}"
    return f"{bytes_:g} B"


def curves_of(files):
    """{(collective, label): [(bytes, us, busbw)]}, and titles of the machines."""
    curves, machines = {}, []
    for name in files:
        with open(name) as file:
            run = json.load(file)
        machine = f"{run['ranks']} x {run['machine'].get('gpu', run['machine'].get('processor', '?'))}"
        if machine not in machines:
            machines.append(machine)
        rival = run.get("rival", "")
        for row in run["rows"]:
            if row.get("time_us", 0) <= 0 or row.get("wrong", 0) > 0:
                continue
            limit = f", {row['max_ctas']} blocks" if row.get("max_ctas") else ""
            factor = row["busbw_gbs"] / row["algbw_gbs"] if row["algbw_gbs"] else 1
            key = (run["collective"], "ccl" + limit)
            curves.setdefault(key, []).append((row["bytes"], row["time_us"], row["busbw_gbs"]))
            if row.get("rival_us", 0) > 0:
                busbw = row["bytes"] / row["rival_us"] / 1e3 * factor
                curves.setdefault((run["collective"], rival + limit), []).append(
                    (row["bytes"], row["rival_us"], busbw))
    for points in curves.values():
        points.sort()
    return curves, machines


def panel(out, x0, y0, title, unit, points_of, log_y, label=size_text):
    every = [p for points in points_of.values() for p in points]
    low, high = min(p[0] for p in every), max(p[0] for p in every)
    top = max(p[1] for p in every)
    bottom = min(p[1] for p in every) if log_y else 0
    if log_y:
        bottom, top = 10 ** math.floor(math.log10(bottom)), 10 ** math.ceil(math.log10(top * 1.0001))
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
        out.append(f'<text x="{x:.1f}" y="{y0 + HEIGHT + 18}" text-anchor="middle">{label(bytes_)}</text>')
    out.append(f'<text x="{x0 - 52}" y="{y0 + HEIGHT / 2}" text-anchor="middle" '
               f'transform="rotate(-90 {x0 - 52} {y0 + HEIGHT / 2})">{unit}</text>')
    for n, points in enumerate(points_of.values()):
        ink = INK[n % len(INK)]
        line = " ".join(f"{at_x(b):.1f},{at_y(v):.1f}" for b, v in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{ink}" stroke-width="2"/>')
        out.extend(f'<circle cx="{at_x(b):.1f}" cy="{at_y(v):.1f}" r="3" fill="{ink}"/>' for b, v in points)


def draw(curves, machines):
    ops = list(dict.fromkeys(op for op, _ in curves))
    most = max(sum(1 for op_, _ in curves if op_ == op) for op in ops)
    pitch = TOP + HEIGHT + BOTTOM + 18 * most
    width, height = LEFT + 2 * WIDTH + GAP + 30, 30 + pitch * len(ops)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           "<style>.grid{stroke:#ddd}.title{font-size:15px;font-weight:bold}</style>",
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="20" class="title">{escape("; ".join(machines))}</text>']
    for n, op in enumerate(ops):
        y = 30 + n * pitch + TOP
        mine = {label: points for (op_, label), points in curves.items() if op_ == op}
        panel(out, LEFT, y, f"{op}: time", "us",
              {label: [(p[0], p[1]) for p in points] for label, points in mine.items()}, True)
        panel(out, LEFT + WIDTH + GAP, y, f"{op}: bus bandwidth", "GB/s",
              {label: [(p[0], p[2]) for p in points] for label, points in mine.items()}, False)
        for k, label in enumerate(mine):
            at = y + HEIGHT + 40 + 18 * k
            out.append(f'<rect x="{LEFT}" y="{at - 9}" width="18" height="4" fill="{INK[k % len(INK)]}"/>')
            out.append(f'<text x="{LEFT + 26}" y="{at - 3}">{escape(label)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", nargs="+", help="files that ccl_perf --json wrote")
    parser.add_argument("-o", "--output", required=True, help="the SVG file")
    options = parser.parse_args()
    curves, machines = curves_of(options.json)
    if not curves:
        sys.exit("picture.py: none of the files holds a row that was timed and right")
    with open(options.output, "w") as file:
        file.write(draw(curves, machines))


if __name__ == "__main__":
    main()
