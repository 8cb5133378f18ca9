"""Starts ranks of a test as processes, and ends all of them at a deadline."""

import os
import random
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent


def free_port():
    """Returns a port that is free, and that the system gives to no connection of another process."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("", random.randrange(10000, first_given if first_given > 12000 else 32768)))
            except OSError:
                continue
            return probe.getsockname()[1]


def start(script, ranks, *arguments, environment=None, skip=(), gpus=None):
    """Starts `script` once for each rank but those of `skip`. Ranks share GPUs if there are fewer."""
    shared = os.environ | {
        "WORLD_SIZE": str(ranks),
        "CCL_COMM_ID": f"127.0.0.1:{free_port()}",
        "CCL_SECRET": secrets.token_hex(16),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    shared |= environment or {}
    if gpus is not None and gpus < ranks:
        shared["CCL_MULTI_RANK_GPU_ENABLE"] = "1"
    return [
        subprocess.Popen(
            [sys.executable, FOLDER / script, *arguments],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank % (gpus or ranks))},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(ranks) if rank not in skip
    ]  # fmt: skip


def wait(processes, limit=120):
    """Returns (exit code, output) of each process. Kills those that run at the deadline."""
    end = time.monotonic() + limit
    results = []
    for process in processes:
        try:
            output, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0] + f"\nkilled after {limit} s"
        results.append((process.returncode, output))
    return results


def run(script, ranks, *arguments, limit=120, **options):
    """Runs all ranks, and raises AssertionError with the output of those that fail."""
    results = wait(start(script, ranks, *arguments, **options), limit)
    bad = [f"rank {i}: exit {code}\n{output}" for i, (code, output) in enumerate(results) if code]
    assert not bad, "\n".join(bad)
    return [output for _, output in results]
