"""mpzero top next to a run that trains."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_run import TinyRun
from trainer import BUILD

pytestmark = pytest.mark.e2e


@dataclass
class Run(TinyRun):
    metrics: tuple[str, ...] = ()  # flags

    def flags(self) -> list[str]:
        return [flag for flag in super().flags() if not flag.startswith("--metrics_file")] + [*self.metrics]


def view(run: Path) -> str:
    command = [str(BUILD / "bin/mpzero"), "top", str(run), "--once"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_run_without_a_metrics_file_does_not_look_as_if_it_hung_at_its_start(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with run.running("--max_steps=100000", "--checkpoint_freq=2"):
        lines = view(run.checkpoints).splitlines()
    assert "its steps are not known without --metrics_file" in lines[1], lines
    assert lines[2].startswith("saved  step "), lines


def test_the_steps_are_found_in_a_file_of_another_name(tmp_path: Path) -> None:
    Run(tmp_path, metrics=(f"--metrics_file={tmp_path}/steps.jsonl",)).train("--max_steps=3")
    lines = view(tmp_path).splitlines()
    assert lines[1] == "finished" and "] step 3 of 3 (100%)" in lines[2], lines
