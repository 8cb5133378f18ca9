"""timeline_test.py CCL_REPORT: the trace and the page of records of two hosts with different clocks."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable

import records

tool = sys.argv[1]


def tracks_of(events: list[dict]) -> dict[tuple[str, str], list[dict]]:
    """Slices by the names of process and track. Those of a track lie within each other."""
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    names = {
        (e["pid"], e["tid"]): (processes[e["pid"]], e["args"]["name"])
        for e in events
        if e["name"] == "thread_name"
    }
    assert len(set(names.values())) == len(names), names
    tracks: dict[tuple[str, str], list[dict]] = {}
    for e in events:
        if e["ph"] != "X":
            continue
        assert e["ts"] >= 0 and e["dur"] >= 0, e
        tracks.setdefault(names[e["pid"], e["tid"]], []).append(e)
    for which, slices in tracks.items():
        open_until: list[float] = []
        for e in slices:  # as they stand in the file
            while open_until and open_until[-1] <= e["ts"]:
                open_until.pop()
            assert not open_until or e["ts"] + e["dur"] <= open_until[-1] + 1e-3, (which, e)
            open_until.append(e["ts"] + e["dur"])
    return tracks


def check_folder_of_a_records_name(folder: pathlib.Path) -> None:
    """It is named and left out; the records beside it count."""
    records.write(folder, records.two_hosts())
    (folder / "ccl_folder.json").mkdir()
    done = subprocess.run([tool, folder], capture_output=True, text=True)
    assert done.returncode == 0 and "of 2 ranks" in done.stdout, done
    assert "ccl_folder.json (Is a directory)" in done.stderr, done


def check_operations(folder: pathlib.Path) -> None:
    """All ranks end a collective at the same time, whatever the clocks say."""
    hosts = [records.record(0, "node1", "running"), records.record(1, "node2", "queued")]
    events, _ = records.run(tool, folder, hosts)
    tracks = tracks_of(events)
    ranks = ("rank 0 on node1, pid 7", "rank 1 on node2, pid 7")
    assert set(tracks) == {
        (rank, track) for rank in ranks for track in ("tensor", "tensor, queued", "tensor, channel 0")
    }, set(tracks)
    runs = [tracks[rank, "tensor"] for rank in ranks]
    assert [len(of) for of in runs] == [9, 8], runs
    for mine, theirs in zip(runs[0], runs[1]):
        assert round(mine["ts"]) == round(theirs["ts"]) and abs(mine["dur"] - 800) < 1, mine
    assert runs[0][8]["cat"] == "not ended" and abs(runs[0][8]["dur"] - 109_800) < 1, runs[0][8]
    assert [len(tracks[rank, "tensor, queued"]) for rank in ranks] == [9, 9]
    for rank in ranks:  # phases have the clock of their host, and follow each other
        launch, *phases = tracks[rank, "tensor, channel 0"]
        assert (launch["name"], round(launch["ts"]), round(launch["dur"])) == (
            "all_reduce/Ring/LL/any", 200, 128)  # fmt: skip
        assert [(e["name"], round(e["ts"]), round(e["dur"])) for e in phases] == [
            ("waits for the launch before", 200, 5), ("waits for the first data", 205, 20),
            ("moves data", 225, 100), ("after the last data", 325, 3),
        ], phases  # fmt: skip


def check_transfers(folder: pathlib.Path) -> None:
    """Steps of both ends stand on one time line, although the ranks end collectives at other times."""
    events, page = records.run(tool, folder, records.two_hosts(skew_ns=400_000))
    tracks = tracks_of(events)
    sends, receives = "tensor, sends over eth0", "tensor, receives over eth0"
    for sender, receiver in ((0, 1), (1, 0)):
        of = [f"rank {rank} on node{rank + 1}, pid 7" for rank in (sender, receiver)]
        sent = [
            e
            for track in (sends, sends + " (2)", sends + " (3)")  # posted together, sent one by one
            for e in tracks[of[0], track]
        ]
        waits = [e for e in sent if e["cat"] == "wait"]
        steps = sorted((e for e in sent if e["cat"] == "send"), key=lambda e: e["ts"])
        came = tracks[of[1], receives]
        assert [round(e["dur"]) for e in waits] == [50, 100], waits
        assert [(e["name"], round(e["dur"])) for e in steps] == [(f"to rank {receiver}", 50)] * 3
        assert [e["name"] for e in came] == [f"from rank {sender}"] * 3, came
        for mine, theirs in zip(steps, came):
            assert round(theirs["ts"] + theirs["dur"] - mine["ts"]) == 80, (mine, theirs)
            assert mine["args"]["step"] == theirs["args"]["step"]
            assert mine["args"]["bytes"] == 50_000 and mine["args"]["GB/s"] == 1
        arrows = {
            ph: {(e["pid"], e["tid"], e["ts"]): e["id"] for e in events if e["ph"] == ph}
            for ph in "sf"
        }
        for mine, theirs in zip(steps, came):
            ends = [(e["pid"], e["tid"], e["ts"]) for e in (mine, theirs)]
            assert arrows["s"][ends[0]] == arrows["f"][ends[1]], (mine, theirs)
    check_page(page, events)


def check_page(page: str, events: list[dict]) -> None:
    assert page.count("</script>") == 4  # no text of a record ends a script
    assert "http" not in page and "@" not in page
    data = dict(re.findall(r'<script type="application/json" id="(\w+)">(.*)</script>', page, re.S))
    text = page.split('id="trace">')[1].split("</script>")[0]
    assert json.loads(text)["traceEvents"] == events
    report = json.loads(page.split('id="report">')[1].split("</script>")[0])
    assert report.startswith("communicator 00000000000000ff tensor of 2 ranks"), report
    assert data


def check_processes(folder: pathlib.Path) -> None:
    """Communicators of a process share it, and ranks of a communicator that share one are apart."""
    small = records.record(0, "node2", "done")
    small["ccl"].update(communicator="00000000000000aa", name="small", ranks=1)
    job = [records.record(0, "node1", "done"), records.record(1, "node2", "done", pid=8)]
    small["ccl"]["pid"] = 8
    tracks = tracks_of(records.run(tool, folder, [*job, small])[0])
    assert ("rank 1 on node2, pid 8", "small") in tracks, set(tracks)
    assert ("rank 1 on node2, pid 8", "tensor") in tracks, set(tracks)
    assert len({process for process, _ in tracks}) == 2, set(tracks)
    (folder / "ccl_00000000000000aa.0.json").unlink()
    threads = [records.record(rank, "node1", "done") for rank in (0, 1)]
    tracks = tracks_of(records.run(tool, folder, threads)[0])
    assert {process for process, _ in tracks} == {
        "rank 0 on node1, pid 7", "rank 1 on node1, pid 7"}  # fmt: skip


def check_overlap(folder: pathlib.Path) -> None:
    """Calls that wait at the same time get tracks of their own."""
    one = records.record(0, "node1", "queued")
    one["ccl"]["ranks"] = 1
    ops = one["ccl"]["operations"]
    for op in ops[2:]:  # all queued behind the second
        op["queued_ns"] = ops[1]["queued_ns"] + 1000
    (folder / "ccl_00000000000000ff.1.json").unlink()
    tracks = tracks_of(records.run(tool, folder, [one])[0])
    waits = {track: len(of) for (_, track), of in tracks.items() if "queued" in track}
    assert sum(waits.values()) == 9 and len(waits) > 1, waits


def check_unknown_times(folder: pathlib.Path) -> None:
    """What a record gives no time for is left out, and the rest stands where it would without it."""
    whole, _ = records.run(tool, folder, records.two_hosts())
    job = records.two_hosts()
    for of in job:
        first = of["ccl"]["phases"][0]
        of["ccl"]["phases"].insert(0, {**first, "channel": 1, "begun_ns": 0})
        of["ccl"]["transfers"] += [
            records.transfer(sends, 1 - of["ccl"]["rank"], 7, 0, 0, 0) for sends in (True, False)
        ]
    job[0]["ccl"]["operations"].append({**records.operation(10, 0, "queued"), "number": 0})
    events, _ = records.run(tool, folder, job)
    named = [e for e in events if e.get("args", {}).get("number") != 0]
    assert named == whole, (len(named), len(whole), max(e.get("ts", 0) for e in events))
    assert all(e["ts"] + e["dur"] < 1e6 for e in events if e["ph"] == "X"), events


def main() -> None:
    checks: tuple[Callable[[pathlib.Path], None], ...] = (
        check_operations, check_transfers, check_processes, check_overlap,
        check_folder_of_a_records_name, check_unknown_times)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for check in checks:
            check(pathlib.Path(folder))


main()
