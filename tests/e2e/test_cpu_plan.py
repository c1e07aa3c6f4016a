"""`mpzero plan` on CPUs from end to end: two ranks measure their host, a plan and a run beside it take the file."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tiny_run import TinyRun
from trainer import BUILD, ENVIRONMENT, command

PROGRAM = str(BUILD / "bin" / "mpzero")
# Micro-batches of the smallest preset are measured first.
SECONDS = 10


def run(words: list[str], folder: Path) -> str:
    environment = {**os.environ, **ENVIRONMENT}
    result = subprocess.run(
        words, capture_output=True, text=True, timeout=300, env=environment, cwd=folder, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_calibration_by_two_ranks_is_for_plans_and_runs_of_two_ranks(tmp_path: Path) -> None:
    # Where mpzero looks for calibrations.
    file = tmp_path / "configs" / "calibrations" / "cpu.json"
    file.parent.mkdir(parents=True)
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
    flags = ["--calibrate", str(file), "--device=cpu", f"--calibrate_seconds={SECONDS}"]
    text = run([*mpirun, PROGRAM, "plan", *flags], tmp_path)
    assert text.count("Calibration: ") == 1
    found = json.loads(file.read_text())
    assert found["gpu"] is False
    assert (found["host"]["ranks"], found["host"]["threads"]) == (2, 1)
    assert {(one["collective"], one["type"]) for one in found["collectives"]} == {
        (name, kind) for name in ("all-gather", "reduce-scatter", "all-reduce") for kind in ("bf16", "fp32")
    }
    assert "2 concurrent ranks" in found["source"]

    training = TinyRun(tmp_path / "run", ranks=2)
    words = command(*training.flags(), "--max_steps=20", "--checkpoint_freq=0", ranks=2)
    log = run(words, tmp_path)
    assert "Plan vs. measured: step" in log
    assert "the largest difference is in" in log

    plan = json.loads(run([PROGRAM, "plan", *training.flags(), "--nproc_per_node=2", "--json"], tmp_path))
    assert plan["step"]["seconds"] > 0
    assert plan["calibration"]["name"].endswith("cpu.json")
    assert plan["machine"]["processor"] == found["device"]


def test_a_calibration_by_several_ranks_is_of_a_cpu(tmp_path: Path) -> None:
    words = ["mpirun", "--oversubscribe", "-n", "2", PROGRAM, "plan", "--calibrate", str(tmp_path / "gpu.json")]
    result = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env={**os.environ, **ENVIRONMENT}, check=False
    )
    assert result.returncode == 2
    assert result.stderr.count("--calibrate with 2 ranks measures CPUs") == 1


def test_a_calibration_out_of_time_does_not_report_all_work_as_done(tmp_path: Path) -> None:
    words = [PROGRAM, "plan", "--calibrate", str(tmp_path / "cpu.json"), "--device=cpu", "--calibrate_seconds=0.1"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    assert "time limit" in result.stdout
    assert "Calibrating: 0 of" in result.stderr and "100%" not in result.stderr
