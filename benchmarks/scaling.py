#!/usr/bin/env python3
"""Simulates collectives on 1, 2, 4 ... machines of a topology file: a table, and a picture of it.

    scaling.py --ccl_topo build/tools/ccl_topo --xml FILE -o docs/pictures/scaling.svg > table.md

Each algorithm has the protocol that is fastest for it. No other package is needed.
"""
import argparse
import json
import subprocess
from html import escape

import picture


def simulate(options, bytes_, nodes):
    """{algorithm: the report of its fastest protocol}"""
    command = [options.ccl_topo, "simulate", options.operation, "--xml", options.xml, "--bytes", bytes_,
               "--nodes", str(nodes), "--format", "json", "--budget", str(options.budget)]
    if options.net_us is not None:
        command += ["--net-us", str(options.net_us)]
    best = {}
    for report in json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout):
        best.setdefault(report["name"].split("/")[1], report)  # the fastest comes first
    return best


def time_text(us):
    return f"{us / 1e3:,.1f} ms" if us >= 1e4 else f"{us:,.0f} us"


def table(bytes_, rows, algorithms):
    print(f"\n| GPUs, {bytes_} | " + " | ".join(algorithms) + " | hottest link of the fastest |")
    print("|---|" + "---|" * (len(algorithms) + 1))
    for ranks, best in rows:
        fastest = min(best.values(), key=lambda report: report["us"])
        link = fastest["links"][0]
        cells = []
        for name in algorithms:
            report = best[name]
            text = f"{time_text(report['us'])} {report['name'].split('/')[2]}"
            cells.append(f"**{text}**" if report is fastest else text)
        print(f"| {ranks:,} | " + " | ".join(cells) + f" | {link['name']}, {100 * link['busy']:.0f} % |")


def draw(panels, title):
    most = max(len(curves) for _, curves in panels)
    width = picture.LEFT + len(panels) * (picture.WIDTH + picture.GAP)
    height = picture.TOP + 30 + picture.HEIGHT + picture.BOTTOM + 18 * most
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           "<style>.grid{stroke:#ddd}.title{font-size:15px;font-weight:bold}</style>",
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{picture.LEFT}" y="20" class="title">{escape(title)}</text>']
    for n, (name, curves) in enumerate(panels):
        x, y = picture.LEFT + n * (picture.WIDTH + picture.GAP), 30 + picture.TOP
        picture.panel(out, x, y, f"{name}: time over GPUs", "us", curves, True, lambda ranks: f"{ranks:,.0f}")
        for k, label in enumerate(curves):
            at = y + picture.HEIGHT + 40 + 18 * k
            out.append(f'<rect x="{x}" y="{at - 9}" width="18" height="4" '
                       f'fill="{picture.INK[k % len(picture.INK)]}"/>')
            out.append(f'<text x="{x + 26}" y="{at - 3}">{escape(label)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ccl_topo", default="build/examples/ccl_topo", help="the program")
    parser.add_argument("--xml", required=True, help="the machine")
    parser.add_argument("--operation", default="all_reduce")
    parser.add_argument("--bytes", nargs="+", default=["64K", "1G"])
    parser.add_argument("--nodes", type=int, default=2048, help="the most")
    parser.add_argument("--net-us", type=float, help="latency of a step over the network")
    parser.add_argument("--budget", type=int, default=2_000_000, help="slices replayed of one case")
    parser.add_argument("-o", "--output", required=True, help="the SVG file")
    options = parser.parse_args()
    counts = [1]
    while counts[-1] * 2 <= options.nodes:
        counts.append(counts[-1] * 2)
    panels = []
    for bytes_ in options.bytes:
        rows = []
        for nodes in counts:
            best = simulate(options, bytes_, nodes)
            rows.append((next(iter(best.values()))["ranks"], best))
        algorithms = sorted(rows[0][1])
        table(bytes_, rows, algorithms)
        panels.append((f"{options.operation} of {bytes_}",
                       {name: [(ranks, best[name]["us"]) for ranks, best in rows] for name in algorithms}))
    with open(options.output, "w") as file:
        file.write(draw(panels, f"simulated: {options.operation} on 1 to {counts[-1]} machines"))


if __name__ == "__main__":
    main()
