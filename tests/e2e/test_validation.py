"""Validation reads the same sequences of each set on any layout. The oracle is transformers, in fp64."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_transformers import SEQ_LENGTH, transformers_loss
from tiny_run import VOCAB_SIZE, TinyRun
from trainer import BUILD, train, write_tokens

pytestmark = pytest.mark.e2e

# No update changes a weight.
FROZEN = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-30, "weight_decay": 0.0}}}
# Ranks, micro-batch, zero_optimization.
LAYOUTS = [
    (1, 1, {"stage": 0}),
    (2, 3, {"stage": 2}),
    (3, 2, {"stage": 3}),
    (4, 1, {"stage": 3, "zero_hpz_partition_size": 2}),
]


def write_sets(folder: Path) -> dict[str, Path]:
    rng = np.random.default_rng(3)
    sizes = {"wiki": 11, "code": 5}
    return {
        name: write_tokens(
            folder / f"{name}.h5", rng.integers(0, VOCAB_SIZE // (place + 1), size * SEQ_LENGTH + 1), VOCAB_SIZE
        )
        for place, (name, size) in enumerate(sizes.items())
    }


def flag_of(sets: dict[str, Path]) -> str:
    return "--validation_data=" + ",".join(f"{name}={path}" for name, path in sets.items())


def recorded(run: TinyRun) -> dict:
    with h5py.File(run.latest / "mp_rank_00_model_states.h5") as file:
        return json.loads(file.attrs["settings"])


def test_each_loss_is_the_same_on_any_layout(tmp_path: Path) -> None:
    first = TinyRun(tmp_path / "first")
    first.train("--max_steps=5")
    weights = tmp_path / "weights"
    program = str(BUILD / "bin" / "zero_to_fp32")
    subprocess.run([program, str(first.checkpoints), str(weights)], check=True, timeout=120, capture_output=True)
    sets = write_sets(tmp_path)
    # Of the second set all, since it has fewer than 7.
    expected = {
        name: transformers_loss(weights, path, windows, "float64")
        for (name, path), windows in zip(sets.items(), (7, 5), strict=True)
    }
    assert abs(expected["wiki"] - expected["code"]) > 1e-3
    for place, (ranks, micro_batch, zero) in enumerate(LAYOUTS):
        run = TinyRun(tmp_path / str(place), ranks=ranks, micro_batch=micro_batch)
        run.config = {**FROZEN, "zero_optimization": zero}
        flags = ["--max_steps=1", "--validation_sequences=7", flag_of(sets), f"--init_from={weights}"]
        result = run.train(*[*flags, "--save_final=false"])
        for name, loss in expected.items():
            assert run.metrics()[0][f"validation_{name}_loss"] == pytest.approx(loss, abs=5e-7), (ranks, micro_batch)
            logged = re.search(rf"Validation loss of {name}: (\S+)", result.stdout)
            assert float(logged.group(1)) == pytest.approx(loss, abs=1e-5)


def test_a_requeue_on_other_ranks_keeps_the_number_of_sequences(tmp_path: Path) -> None:
    """That of --validation_batches, which would mean another one there."""
    run = TinyRun(tmp_path, config=FROZEN)
    sets = write_sets(tmp_path)
    flags = [f"--validation_data={sets['wiki']}", "--validation_batches=1", "--validation_freq=1"]
    result = run.train("--max_steps=1", *flags)
    assert result.stderr.count("--validation_sequences 4") == 1
    assert recorded(run)["validation_sequences"] == 4
    run.ranks = 1
    preview = train(*run.flags(), *flags, "--max_steps=2", "--dry_run")
    assert "Validation uses 4 sequences" in preview.stdout
    result = run.train("--max_steps=2", *flags)
    assert "Validation uses 4 sequences" in result.stdout
    assert recorded(run)["validation_sequences"] == 4
    first, second = (line["validation_loss"] for line in run.metrics())
    assert first == pytest.approx(second, abs=1e-6)
    # With a number of the user's own that holds, and the line says what has changed.
    result = run.train("--max_steps=3", flags[0], "--validation_freq=1", "--validation_sequences=8")
    assert "validation_sequences 4 -> 8" in result.stdout
    assert abs(run.metrics()[-1]["validation_loss"] - first) > 1e-4


def test_the_sets_of_a_run_are_shown_before_it(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    sets = write_sets(tmp_path)
    flags = [*run.flags(), "--max_steps=1", "--validation_sequences=7", flag_of(sets)]
    for more in ((), ("--dry_run",)):
        shown = train(*flags, *more).stdout
        assert f"wiki, every 100 steps: the first 7 of 11 sequences of 16 tokens in {sets['wiki']}" in shown
        assert f"code, every 100 steps: all 5 sequences of 16 tokens in {sets['code']}" in shown
