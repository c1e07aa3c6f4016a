"""A campaign of faults in each file that a run writes, before, during and after its saves.

A library that is preloaded into the rank (tests/faults/disk_faults.cpp) makes each fault: a full disk, a file system
that has become read-only, an I/O error. The run trains on with the same losses and ends with a checkpoint that
verifies. A mark shows where lines are missing in a file.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from live_run import LiveRun
from tiny_run import TinyRun
from trainer import BUILD, ENVIRONMENT, REPOSITORY

pytestmark = pytest.mark.e2e

STEPS = 12
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO)
SOURCE = (REPOSITORY / "tests/faults/disk_calls.hpp").read_text()
KINDS = re.findall(r'"(\w+)"', SOURCE[SOURCE.index("kDiskCallNames =") :])
LIBRARY = BUILD / "tests/libdisk_faults.so"


class Faults:
    """A run of one rank that saves at every third step, all of whose files are in its checkpoint folder."""

    def __init__(self, folder: Path):
        self.run = TinyRun(folder, ranks=1)

    def train(self, fault: str = "", path: str = "", steps: int = STEPS) -> subprocess.CompletedProcess[str]:
        folder = self.run.checkpoints
        folder.mkdir(exist_ok=True)
        words = [flag for flag in self.run.flags() if not flag.startswith("--metrics_file")]
        words += [f"--metrics_file={folder / 'metrics.jsonl'}", f"--max_steps={steps}"]
        words += ["--checkpoint_freq=3", "--logging_freq=1"]
        (self.run.folder / "counts").write_bytes(bytes(8 * len(KINDS)))
        # The rank alone: mpirun and orted have files of their own.
        environment = {
            "LD_PRELOAD": str(LIBRARY),
            "MPZERO_FAULT_FOLDER": str(folder),
            "MPZERO_FAULT": fault,
            "MPZERO_FAULT_PATH": path,
            "MPZERO_FAULT_COUNTS": str(self.run.folder / "counts"),
        }
        rank = ["env", *(f"{name}={value}" for name, value in environment.items())]
        program = ["mpirun", "--bind-to", "none", "-n", "1", *rank, str(BUILD / "bin/mpzero"), "train"]
        return subprocess.run(
            [*program, *words], capture_output=True, text=True, env={**os.environ, **ENVIRONMENT}, check=False
        )

    def counts(self) -> dict[str, int]:
        """The calls that the last run made on its files, by kind."""
        return dict(zip(KINDS, np.fromfile(self.run.folder / "counts", np.uint64).tolist(), strict=True))

    def lines(self, name: str) -> list[dict]:
        """Of a JSON Lines file, without torn lines."""
        found = []
        for line in (self.run.checkpoints / name).read_text().splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                assert not line.endswith("}"), line
        return found


def losses(result: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"Batch \d+ Loss: [\d.]+", result.stdout)


def check_complete(faults: Faults, result: subprocess.CompletedProcess[str], expected: list[str]) -> None:
    assert result.returncode == 0, result.stderr
    assert losses(result) == expected
    assert faults.run.latest.name == f"tiny-{STEPS}steps"
    verify = [BUILD / "bin/mpzero", "checkpoint", "verify", faults.run.checkpoints]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0


@dataclass
class Reference:
    losses: list[str]
    calls: dict[str, int]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    faults = Faults(tmp_path_factory.mktemp("reference"))
    result = faults.train()
    assert result.returncode == 0, result.stderr
    assert len(losses(result)) == STEPS
    return Reference(losses(result), faults.counts())


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl", "node.jsonl"])
def test_lines_that_cannot_be_written_are_counted_and_training_continues(tmp_path, reference, name):
    faults = Faults(tmp_path)
    faults.train("", name)
    writes = faults.counts()["write"]
    shutil.rmtree(faults.run.checkpoints)
    # Outages of one to three lines, the last one up to the end.
    first = max(2, writes // 4)
    windows = [(first, first, ERRORS[0]), (first + 3, first + 5, ERRORS[1]), (writes, writes + 9, ERRORS[2])]
    result = faults.train(",".join(f"write:{a}:{error}:{b}" for a, b, error in windows), name)
    check_complete(faults, result, reference.losses)
    assert f"cannot write {faults.run.checkpoints / name}" in result.stderr
    lines = faults.lines(name)
    assert all(line["lines"] > 0 for line in lines if line.get("event") == "gap")
    if name == "metrics.jsonl":
        steps = [line.get("step") for line in lines]
        assert [line["lines"] for line in lines if "event" in line] == [1, 3]
        missing = set(range(1, STEPS + 1)) - set(steps)
        assert missing == {first, *range(first + 3, first + 6), STEPS}
    # The next start reads what there is.
    more = faults.train("", name, STEPS + 2)
    assert more.returncode == 0, more.stderr


@pytest.mark.parametrize("kind", ["write", "create", "sync", "rename", "mkdir"])
def test_a_disk_that_fails_for_a_while_delays_saves_and_nothing_else(tmp_path, reference, kind):
    faults = Faults(tmp_path)
    calls = reference.calls[kind]
    starts = {max(2, calls * part // 8): error for part, error in zip((3, 5, 7), ERRORS, strict=True)}
    result = faults.train(",".join(f"{kind}:{start}:{error}" for start, error in starts.items()))
    check_complete(faults, result, reference.losses)
    assert "mpzero: warning: " in result.stderr


def test_a_checkpoint_folder_that_is_moved_away_is_not_created_anew_and_is_used_when_it_is_back(tmp_path):
    run = TinyRun(tmp_path, ranks=2)
    away = tmp_path / "away"
    with LiveRun(run, "--max_steps=10000000", "--checkpoint_freq=20", "--logging_freq=1000") as live:
        live.wait_for(lambda: (run.checkpoints / "latest").exists(), "a checkpoint")
        run.checkpoints.rename(away)
        live.wait_for(lambda: f"{run.checkpoints} has disappeared" in live.errors, "refusal")
        assert not run.checkpoints.exists()
        last = (away / "latest").read_text()
        away.rename(run.checkpoints)
        live.wait_for(lambda: (run.checkpoints / "latest").read_text() != last, "a checkpoint")
        live.signal(signal.SIGUSR1, 0)
        assert live.finish() == 75, live.errors
    verify = [BUILD / "bin/mpzero", "checkpoint", "verify", run.checkpoints]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0
