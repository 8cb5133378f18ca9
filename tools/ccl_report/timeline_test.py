"""timeline_test.py CCL_REPORT: the trace and the page of records of two hosts with different clocks."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile


def record(rank: int, host: str, shift_ns: int, last: str, operations: int = 9) -> dict:
    """Operations of 1 ms each, 10 ms apart; the last one has another state."""
    ops = []
    for n in range(1, operations + 1):
        begin = 10**18 + n * 10_000_000 + shift_ns
        state = last if n == operations else "done"
        ops.append(
            {
                "number": n, "what": "all_reduce/Ring/LL/any", "type": "float", "redop": "</script>",
                "count": 8, "root": -1, "composition": 0, "call": n, "state": state,
                "queued_ns": begin, "started_ns": 0 if state == "queued" else begin + 200_000,
                "ended_ns": begin + 1_000_000 if state == "done" else 0,
            }
        )  # fmt: skip
    # Channel 0 of operation 1: 5, 20, 100 and 3 us.
    at = 10**18 + 10_000_000 + shift_ns + 200_000
    phases = [
        {
            "number": 1, "composition": 0, "call": 1, "channel": 0, "begun_ns": at, "ready_ns": at + 5_000,
            "first_data_ns": at + 25_000, "last_data_ns": at + 125_000, "ended_ns": at + 128_000,
        }
    ]  # fmt: skip
    return {
        "ccl": {
            "format": "ccl flight record 1", "communicator": "00000000000000ff", "name": "tensor",
            "ranks": 2, "failure": "", "rank": rank, "host": host, "pid": 7 + rank,
            "now_ns": 10**18 + 200_000_000 + shift_ns, "called": operations, "rendezvous": "",
            "shortage": "", "waits_peer": -1, "waits_step": 0, "network_bytes": 0, "proxy_stuck_s": 0, "elsewhere": "",
            "elsewhere_host": "", "elsewhere_pid": 0, "steps": [], "operations": ops,
            "phases": phases,
        }
    }  # fmt: skip


def main() -> None:
    tool = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        ahead_ns = 3_000_000_000  # by which the second host's clock is ahead
        for rank, host, shift, last in ((0, "node1", 0, "running"), (1, "node2", ahead_ns, "queued")):
            text = json.dumps(record(rank, host, shift, last))
            (at / f"ccl_00000000000000ff.{rank}.json").write_text(text)
        trace, page = at / "trace.json", at / "page.html"
        subprocess.run(
            [tool, folder, "--trace", trace, "--page", page], check=True, stdout=subprocess.PIPE
        )
        events = json.loads(trace.read_text())["traceEvents"]
        names = {e["args"]["name"] for e in events if e["ph"] == "M"}
        assert names == {"rank 0 on node1, pid 7", "rank 1 on node2, pid 8", "tensor",
                         "tensor, queued", "tensor, channel 0"}, names  # fmt: skip
        runs = [e for e in events if e["ph"] == "X" and e["tid"] == 1]
        waits = [e for e in events if e["ph"] == "X" and e["tid"] == 2]
        assert len(runs) == 9 + 8 and len(waits) == 18, (len(runs), len(waits))
        for event in runs[:8]:  # aligned: both hosts run the same operation at the same time
            twin = [e for e in runs if e["args"]["number"] == event["args"]["number"]]
            assert {round(e["ts"]) for e in twin} == {round(event["ts"])}, twin
            assert len(twin) == 2 and abs(event["dur"] - 800) < 1, twin
        open_one = [e for e in runs if e["args"]["state"] == "running"]
        assert len(open_one) == 1 and abs(open_one[0]["dur"] - 109_800) < 1, open_one
        for rank in (0, 1):  # phases have the clock of their host, and follow each other
            phases = [e for e in events if e["ph"] == "X" and e["pid"] == rank and e["tid"] > 2]
            named = [(e["name"], round(e["ts"]), round(e["dur"])) for e in phases]
            assert named == [
                ("waits for the launch before", 200, 5), ("waits for the first data", 205, 20),
                ("moves data", 225, 100), ("after the last data", 325, 3),
            ], named  # fmt: skip
        text = page.read_text()
        assert text.count("</script>") == 1  # no text of a record ends the script
        assert "http" not in text
        data = json.loads(re.search(r"const data = (.*);\n", text).group(1))
        assert [len(row["slices"]) for row in data["rows"]] == [9, 9]
        assert data["rows"][0]["slices"][8]["open"] and data["rows"][1]["slices"][8]["started"] == -1
        assert "moves data 100.000 us" in data["rows"][1]["slices"][0]["text"]
        assert "</script>" in data["rows"][0]["slices"][0]["text"]


main()
