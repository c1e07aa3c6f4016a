"""A tiny run in the background whose ranks the tests can signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_run import TinyRun
from trainer import BUILD, ENVIRONMENT, children_of, command, wait_until_ended

# Generous: it only ends a test that hangs.
LIMIT_SECONDS = 200


class LiveRun:
    """`with LiveRun(run, flags…) as live:`; what is left of the run is killed at the end of the block."""

    def __init__(self, run: TinyRun, *flags: object) -> None:
        self.run = run
        self.output = ""
        self.errors = ""
        self.process = subprocess.Popen(
            command(*run.flags(), *flags, ranks=run.ranks),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        self.readers = [threading.Thread(target=self._read, args=(name,)) for name in ("output", "errors")]
        for reader in self.readers:
            reader.start()
        self.pids: list[int] = []

    def _read(self, name: str) -> None:
        for line in self.process.stdout if name == "output" else self.process.stderr:
            setattr(self, name, getattr(self, name) + line)

    def __enter__(self) -> LiveRun:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.ranks():
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    break
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for reader in self.readers:
            reader.join()

    def ranks(self) -> list[int]:
        """The process ids of the ranks, by rank."""
        if not self.pids and self.process.poll() is None:
            of_rank = {}
            for pid in map(int, children_of(self.process)):
                environment = Path(f"/proc/{pid}/environ").read_text(errors="replace")
                found = re.search(r"OMPI_COMM_WORLD_RANK=(\d+)", environment)
                if found:
                    of_rank[int(found.group(1))] = pid
            if len(of_rank) == self.run.ranks:
                self.pids = [of_rank[rank] for rank in sorted(of_rank)]
        return self.pids

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            assert self.process.poll() is None, f"ended before {what}:\n{self.output}\n{self.errors}"
            assert time.monotonic() < deadline, f"no {what}:\n{self.output}\n{self.errors}"
            time.sleep(0.01)

    def wait_for_step(self, step: int) -> None:
        metrics = self.run.folder / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= step, f"step {step}")
        self.wait_for(lambda: len(self.ranks()) == self.run.ranks, "ranks")

    def wait_for_output(self, text: str) -> None:
        self.wait_for(lambda: text in self.output, text)
        self.wait_for(lambda: len(self.ranks()) == self.run.ranks, "ranks")

    def wait_for_hanging(self) -> None:
        """Until each rank waits for the file of hang_at()."""
        self.wait_for(lambda: len(list(self.run.folder.glob("hangs-*"))) == self.run.ranks, "ranks that hang")
        self.wait_for(lambda: len(self.ranks()) == self.run.ranks, "ranks")

    def signal(self, number: int, *ranks: int) -> None:
        for rank in ranks:
            os.kill(self.ranks()[rank], number)

    def signal_waiting_rank(self, number: int) -> None:
        """Sends the signal to rank 0 while it waits in a step for rank 1, which is suspended."""
        self.wait_for_step(3)
        self.signal(signal.SIGSTOP, 1)
        self.signal(number, 0)

    def finish(self, *, limit: float = LIMIT_SECONDS) -> int:
        """Waits for the end; returns mpirun's exit status. No rank is left then."""
        ranks = list(map(str, self.ranks()))
        status = self.process.wait(timeout=limit)
        for reader in self.readers:
            reader.join()
        wait_until_ended(ranks)
        return status


def hang_at(name: str, run: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that does not respond: no process can open a file of this name (hanging_file.cpp)."""
    monkeypatch.setenv("LD_PRELOAD", str(BUILD / "tests/libhanging_file.so"))
    monkeypatch.setenv("HANGING_FILE", name)
    monkeypatch.setenv("HANGING_SEEN", f"{run.folder}/hangs-")
