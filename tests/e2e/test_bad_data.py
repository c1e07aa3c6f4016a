"""Training data that is missing, damaged or changed: one sentence that says what, where and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from refusals import refuse, the_sentence
from tiny_run import MODEL, TinyRun
from trainer import (
    REPOSITORY,
    write_older_tokens,
    write_tokens,
)

pytestmark = pytest.mark.e2e


def test_missing_data(tmp_path: Path) -> None:
    sentence = refuse(TinyRun(tmp_path), f"--validation_data={tmp_path / 'absent.h5'}")
    assert "absent.h5" in sentence
    assert "prepare_data.py" in sentence


def test_truncated_data(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    content = run.data.read_bytes()
    run.data.write_bytes(content[: len(content) // 2])
    assert "train.h5" in refuse(run)


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


def test_data_replaced_under_a_run(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with run.running("--max_steps=1000000", "--checkpoint_freq=3", "--keep_last=1") as process:
        write_tokens(tmp_path / "other.h5", np.zeros(3001), MODEL["vocab_size"]).rename(run.data)
        assert process.wait(timeout=60) == 2
    assert f"{run.data} was replaced by another file while it was being read" in the_sentence(run.errors.read_text())


def test_tokens_that_were_never_written(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with h5py.File(run.data, "r+") as file:
        attributes = dict(file.attrs)
        del file["tokens"], file["tokens_xxh3"]
        file.create_dataset("tokens", (3001,), np.uint16, chunks=(500,))[:3000] = 1
        file.attrs.update(attributes)
    sentence = refuse(run)
    assert str(run.data) in sentence
    assert "never written" in sentence
    assert "prepare_data.py" in sentence


def test_changed_byte_of_the_tokens(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with h5py.File(run.data) as file:
        place = file["tokens"].id.get_chunk_info(0).byte_offset
    with open(run.data, "r+b") as file:
        file.seek(place + 2 * 1500)
        before = file.read(1)[0]
        file.seek(place + 2 * 1500)
        file.write(bytes([before ^ 1]))
    sentence = refuse(run)
    assert f"{run.data} is damaged: tokens 0 to 3,000 are not those that were written" in sentence
    assert "prepare" in sentence


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
        said = [line for line in result.stderr.splitlines() if "holds no checksums" in line]
        assert len(said) == lines, result.stderr
        assert all(f"app/prepare_data.py --rewrite {run.data}" in line for line in said)
        losses.append([step["loss"] for step in run.metrics()])
    assert losses[0] == losses[1]


def test_empty_data(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    write_tokens(run.data, np.zeros(0), MODEL["vocab_size"])
    assert "train.h5" in refuse(run)


def test_vocabulary_too_small(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    sentence = refuse(run, "--vocab_size=32")
    assert "train.h5" in sentence
    assert "63" in sentence
    assert "31" in sentence
