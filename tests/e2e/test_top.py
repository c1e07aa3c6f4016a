"""mpzero top next to a run: what it shows comes from what the run writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tiny_run import TinyRun
from trainer import BUILD

pytestmark = pytest.mark.e2e


def view(run: Path) -> list[str]:
    command = [str(BUILD / "bin/mpzero"), "top", str(run), "--once"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def test_the_steps_are_those_of_the_metrics_file_if_there_is_one(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    flags = [flag for flag in run.flags() if not flag.startswith("--metrics_file")]
    run.flags = lambda: flags
    with run.running("--max_steps=100000", "--checkpoint_freq=2", "--metrics_file=none"):
        lines = view(run.checkpoints)
    assert "--metrics_file" in lines[1] and lines[2].startswith("saved  step "), lines
    run.train("--max_steps=3", "--overwrite", f"--metrics_file={tmp_path}/steps.jsonl")
    lines = view(tmp_path)
    assert lines[1] == "finished" and "] step 3 of 3 (100%)" in lines[2], lines
