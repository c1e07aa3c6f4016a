"""bench/cpu_training.py on the small model: both sides train, and are compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainer import BUILD, ENVIRONMENT

PROGRAM = Path(__file__).resolve().parents[2] / "bench" / "cpu_training.py"


def test_both_sides_train_and_are_compared(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    words = [sys.executable, PROGRAM, tmp_path, "qwen3_tiny", "--build", BUILD, "--warm_up=1", "--steps=1"]
    done = subprocess.run(words, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ours, theirs, comparison = lines
    assert ours["program"] == "mpzero" and theirs["program"] == "Hugging Face"
    assert ours["measured_steps"] == 1 and ours["forward_ms"] > 0 and ours["backward_ms"] > 0
    assert comparison["mpzero_to_hugging_face"] == pytest.approx(
        ours["tokens_per_second"] / theirs["tokens_per_second"], abs=0.01
    )
    assert json.loads((tmp_path / "cpu_training.json").read_text()) == lines


def test_an_unknown_work_is_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    words = [sys.executable, PROGRAM, tmp_path, "qwen4"]
    done = subprocess.run(words, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "unknown workload qwen4; choose from qwen3_0_6b_bf16" in done.stderr
