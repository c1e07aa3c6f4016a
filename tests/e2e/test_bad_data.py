"""Training data that is missing, damaged or changed: one sentence that says what, where and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from refusals import refuse, the_sentence
from tiny_run import MODEL, TinyRun
from trainer import (
    REPOSITORY,
    write_older_tokens,
)

pytestmark = pytest.mark.e2e


def test_missing_data(tmp_path: Path) -> None:
    sentence = refuse(TinyRun(tmp_path), f"--validation_data={tmp_path / 'absent.h5'}")
    assert "absent.h5" in sentence
    assert "prepare_data.py" in sentence


def test_data_cut_off_under_a_run(tmp_path: Path) -> None:
    """HDF5 would continue with zeros, or with cached data. Once the data are back, the run can resume."""
    run = TinyRun(tmp_path)
    content = run.data.read_bytes()
    with run.running("--max_steps=1000000", "--checkpoint_freq=3", "--keep_last=1") as process:
        os.truncate(run.data, len(content) // 2)
        assert process.wait(timeout=60) == 2
    sentence = the_sentence(run.errors.read_text())
    assert f"{run.data} changed from {len(content)} to {len(content) // 2} bytes while it was being read" in sentence
    assert "start the run again" in sentence
    run.data.write_bytes(content)
    saved = int(run.latest.name.removeprefix("tiny-").removesuffix("steps"))
    assert f"Resumed from checkpoint at step {saved}" in run.train(f"--max_steps={saved + 1}").stdout


def test_data_without_checksums_gets_them(tmp_path: Path) -> None:
    """One line says that they are missing and which command adds them, after which the run is the same."""
    older, rewritten = TinyRun(tmp_path / "older"), TinyRun(tmp_path / "rewritten")
    with h5py.File(older.data) as file:
        tokens = file["tokens"][:]
    for run in (older, rewritten):
        write_older_tokens(run.data, tokens, MODEL["vocab_size"])
    losses = []
    for run, lines in ((older, 1), (rewritten, 0)):
        if run is rewritten:
            program = [sys.executable, REPOSITORY / "app/prepare_data.py", "--rewrite", run.data]
            said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
            assert f"{run.data}: rewritten with checksums, 3,001 tokens." in said
        result = run.train("--max_steps=3")
        said = [line for line in result.stderr.splitlines() if "has no checksums" in line]
        assert len(said) == lines, result.stderr
        assert all(f"app/prepare_data.py --rewrite {run.data}" in line for line in said)
        losses.append([step["loss"] for step in run.metrics()])
    assert losses[0] == losses[1]
