"""A run that stops and resumes equals the run that never stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest
from tiny_run import MODEL, VOCAB_SIZE, TinyRun
from trainer import children_of, wait_until_ended, write_tokens

pytestmark = pytest.mark.e2e

RECORDED = ("step", "loss", "lr", "grad_norm", "tokens")


def curve(run: TinyRun) -> list[tuple]:
    return [tuple(line[key] for key in RECORDED) for line in run.metrics()]


def final_states(run: TinyRun) -> dict[str, np.ndarray]:
    """Every array of the latest checkpoint's optimizer shards, by file and name."""
    states: dict[str, np.ndarray] = {}
    for path in sorted(run.latest.glob("*optim_states.h5")):
        with h5py.File(path) as file:
            file.visititems(
                lambda name, item, path=path: (
                    states.__setitem__(f"{path.name}/{name}", item[()]) if isinstance(item, h5py.Dataset) else None
                )
            )
    assert states
    return states


def assert_same_bits(one: TinyRun, other: TinyRun) -> None:
    assert curve(one) == curve(other)
    ours, theirs = final_states(one), final_states(other)
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        assert values.tobytes() == theirs[name].tobytes(), name


BF16_MOMENTS = {"bf16": {"enabled": True, "bf16_optimizer_states": True}}


@pytest.mark.parametrize(("stage", "config"), [(2, {}), (3, {"bf16": {"enabled": True}}), (2, BF16_MOMENTS)])
def test_resume_has_the_same_bits(tmp_path: Path, stage: int, config: dict) -> None:
    straight = TinyRun(tmp_path / "straight", stage=stage, config=config)
    straight.train("--max_steps=9", "--checkpoint_freq=0")
    stopped = TinyRun(tmp_path / "stopped", stage=stage, config=config)
    # The schedule's length is in ds_config.json, so that a shorter run follows the same rates.
    stopped.train("--max_steps=4", "--checkpoint_freq=0")
    result = stopped.train("--max_steps=9", "--checkpoint_freq=0")
    assert "Resumed from checkpoint at step 4" in result.stdout
    assert_same_bits(straight, stopped)


def test_killed_after_a_checkpoint(tmp_path: Path) -> None:
    killed = TinyRun(tmp_path / "killed", stage=3)
    with killed.running("--max_steps=100000", "--checkpoint_freq=5", "--keep_last=2") as process:
        ranks = children_of(process)
        for pid in [process.pid, *map(int, ranks)]:
            os.kill(pid, signal.SIGKILL)
    wait_until_ended(ranks)
    saved = int((killed.checkpoints / "latest").read_text().strip().split("-")[-1].removesuffix("steps"))
    steps = saved + 5
    result = killed.train(f"--max_steps={steps}", "--checkpoint_freq=0")
    assert f"Resumed from checkpoint at step {saved}" in result.stdout
    straight = TinyRun(tmp_path / "straight", stage=3)
    straight.train(f"--max_steps={steps}", "--checkpoint_freq=0")
    assert_same_bits(straight, killed)


def test_other_data_is_not_a_silent_change(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=2")
    assert "training data differs from" not in run.train("--max_steps=3").stderr
    other = write_tokens(tmp_path / "other.h5", np.arange(200) % VOCAB_SIZE, VOCAB_SIZE)
    run.data = other
    result = run.train("--max_steps=4")
    assert result.stderr.count("mpzero: warning: the training data differs from") == 1
    assert "187 sequences of 16 tokens" in result.stderr
    assert "12 sequences of 16 tokens" in result.stderr


def test_a_resume_with_another_batch_and_layout_reads_the_sequences_that_follow(tmp_path: Path) -> None:
    """No update changes a weight: a step's loss is the mean of its sequences' losses, which batches of 1 record."""

    def losses(name: str, steps: int, **layout: int) -> list[float]:
        run = TinyRun(tmp_path / name, **layout)
        run.config = {"gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-12}}}
        (run.folder / "tiny.json").write_text(json.dumps({**MODEL, "initializer_range": 0.3}))
        run.train(f"--max_steps={steps}")
        return [line["loss"] for line in run.metrics()]

    of_sequence = losses("one", 36, ranks=1, micro_batch=1, stage=0)
    losses("resumed", 3, ranks=2, micro_batch=2)
    found = losses("resumed", 7, ranks=3, micro_batch=2, stage=3)
    batches = [*np.split(np.array(of_sequence[:12]), 3), *np.split(np.array(of_sequence[12:]), 4)]
    assert found == pytest.approx([batch.mean() for batch in batches], rel=1e-5)
    assert len(set(of_sequence)) == 36
