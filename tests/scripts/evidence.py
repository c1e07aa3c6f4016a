"""Writes the evidence of a failed start, as ranks of mpzero do (docs/formats.md)."""

import itertools
import json
import os
import time
from pathlib import Path

PHASE = "training"
# Each change of a start's folder is later than the one before, which the file system's clock may be too coarse to show.
CHANGES = itertools.count(time.time_ns())


def channel(queued: int, completed: int, *, started: int = -1, ranks=(0, 0, 1), name="parameters", seconds=9.0) -> dict:
    last = [[number, "all_gather", 1 << 20, 1, seconds] for number in range(completed + 1, queued + 1)]
    started = queued if started < 0 else started
    return {
        "name": name, "ranks": list(ranks), "queued": queued, "started": started, "completed": completed, "last": last
    }  # fmt: skip


class Evidence:
    """Of a start with so many hosts, `ranks` on each."""

    def __init__(self, folder: Path, hosts: int = 2, ranks: int = 2, *, start="20261126T120000Z-0123abcd", **facts):
        self.checkpoints = folder
        self.folder = folder / "failures" / start
        self.folder.mkdir(parents=True)
        self.hosts = [f"node{rank // ranks}" for rank in range(hosts * ranks)]
        self.common = {"version": 1, "start": start, "job": "7", "restart": 0}
        self.common.update(
            (key, facts.pop(key)) for key in ("job", "restart", "launch", "checkpoint_dir") if key in facts
        )
        self.times = time.time()
        self.pids = [100 + rank for rank in range(hosts * ranks)]
        started = {"ranks": len(self.hosts), "hosts": self.hosts, "pids": self.pids, "started": 1_700_000_000, **facts}
        self.write("start.json", {**self.common, **started})

    def write(self, name: str, value: dict) -> None:
        (self.folder / name).write_text(json.dumps(value))
        os.utime(self.folder, ns=(next(CHANGES),) * 2)

    def rank(self, rank: int, why: str = "stuck", **values) -> None:
        """Each call is a second later than the one before."""
        self.times += 1
        if not (self.folder / "first").exists():
            (self.folder / "first").write_text(f"{rank}\n")
        place = {"rank": rank, "host": self.hosts[rank], "pid": 100 + rank, "time": self.times, "why": why}
        value = {"phase": PHASE, "step": 5, "seconds_since_progress": 9.0, "channels": [], "neighbours": []}
        self.write(f"rank_{rank}.json", {**self.common, **place, **value, **values})


def line(rank: int, *, alive: bool = True, quiet: float = 0.0, **values) -> dict:
    """Of a rank in the evidence of a neighbour."""
    return {"rank": rank, "pid": 100 + rank, "alive": alive, "quiet": quiet, "phase": PHASE, "step": 5, **values}


def blame(folder: Path, host: int = 1, reason: str = "it broke", job: str = "7", restart: int = 0) -> str:
    """Evidence against a host node0 or node1 of one rank each. -> what the verdict says"""
    start = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + f"-{time.monotonic_ns() % (1 << 32):08x}"
    found = Evidence(folder, hosts=2, ranks=1, start=start, job=job, restart=restart)
    found.rank(host, "device_error", error=reason)
    found.rank(1 - host, "signal")
    return f"rank {host} on node{host} (pid {100 + host}): {reason}"
