"""Flight records of a job that never ran, for the tests of ccl_report."""

import json
import pathlib
import subprocess
import sys

base_ns = 10**18
ahead_ns = 3_000_000_000  # by which the clock of node2 is ahead


def operation(n: int, begin: int, state: str) -> dict:
    return {
        "number": n, "what": "all_reduce/Ring/LL/any", "type": "float", "redop": "</script>",
        "count": 8, "root": -1, "composition": 0, "call": n, "state": state,
        "queued_ns": begin, "started_ns": 0 if state == "queued" else begin + 200_000,
        "ended_ns": begin + 1_000_000 if state == "done" else 0,
    }  # fmt: skip


def transfer(sends: bool, peer: int, step: int, posted: int, begin: int, end: int) -> dict:
    return {
        "sends": sends, "peer": peer, "composition": 0, "channel": 0, "stream": 0, "step": step,
        "bytes": 50_000, "posted_ns": posted, "begin_ns": begin, "end_ns": end, "network": "eth0",
    }  # fmt: skip


def record(rank: int, host: str, last: str, pid: int = 7, skew_ns: int = 0) -> dict:
    """Nine operations of 1 ms, 10 ms apart, of which the last has another state. `skew_ns`: by which
    this rank's operations are later than those of the others."""
    shift = base_ns + (ahead_ns if host == "node2" else 0)
    ops = [operation(n, shift + skew_ns + n * 10_000_000, "done") for n in range(1, 9)]
    ops.append(operation(9, shift + skew_ns + 90_000_000, last))
    # Channel 0 of operation 1: 5, 20, 100 and 3 us.
    at = shift + skew_ns + 10_200_000
    phases = [
        {
            "number": 1, "composition": 0, "call": 1, "channel": 0, "begun_ns": at, "ready_ns": at + 5_000,
            "first_data_ns": at + 25_000, "last_data_ns": at + 125_000, "ended_ns": at + 128_000,
        }
    ]  # fmt: skip
    return {
        "ccl": {
            "format": "ccl flight record 1", "communicator": "00000000000000ff", "name": "tensor",
            "ranks": 2, "failure": "", "rank": rank, "host": host, "pid": pid,
            "now_ns": shift + skew_ns + 200_000_000, "called": 9, "rendezvous": "",
            "shortage": "", "waits_peer": -1, "waits_step": 0, "network_bytes": 0, "proxy_stuck_s": 0,
            "elsewhere": "", "elsewhere_host": "", "elsewhere_pid": 0, "steps": [],
            "operations": ops, "phases": phases, "transfers": [],
        }
    }  # fmt: skip


def two_hosts(skew_ns: int = 0) -> list[dict]:
    """Records of two ranks on hosts with different clocks. Each sends three steps at once, 50 us apart
    in the socket, and each step takes 80 us."""
    both = [record(0, "node1", "running"), record(1, "node2", "queued", skew_ns=skew_ns)]
    for sender in (0, 1):
        clocks = [base_ns, base_ns + ahead_ns]
        for step in range(3):
            posted, begin = 20_400_000, 20_400_000 + 50_000 * step
            times = [clock + begin for clock in clocks]
            both[sender]["ccl"]["transfers"].append(
                transfer(True, 1 - sender, step, clocks[sender] + posted, times[sender],
                         times[sender] + 50_000)
            )  # fmt: skip
            both[1 - sender]["ccl"]["transfers"].append(
                transfer(False, sender, step, 0, times[1 - sender] + 60_000, times[1 - sender] + 80_000)
            )
    return both


def need(program: str, what: str) -> None:
    """Skips the test if CMake has not found a program."""
    if program.endswith("-NOTFOUND"):
        print(f"SKIP: no {what} was found; install it, and configure anew")
        sys.exit(77)


def write(folder: pathlib.Path, records: list[dict]) -> None:
    for of in records:
        ccl = of["ccl"]
        (folder / f"ccl_{ccl['communicator']}.{ccl['rank']}.json").write_text(json.dumps(of))


def run(tool: str, folder: pathlib.Path, records: list[dict]) -> tuple[list[dict], str]:
    """Returns the events of the trace and the page."""
    write(folder, records)
    trace, page = folder / "trace.json", folder / "page.html"
    subprocess.run(
        [tool, folder, "--trace", trace, "--page", page], check=True, stdout=subprocess.PIPE
    )
    return json.loads(trace.read_text())["traceEvents"], page.read_text()
