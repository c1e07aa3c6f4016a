"""A run that stops and resumes equals the run that never stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import h5py
import numpy as np
import pytest
from tiny_run import VOCAB_SIZE, TinyRun
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


@pytest.mark.parametrize(("stage", "bf16"), [(2, False), (3, False), (3, True)])
def test_resume_has_the_same_bits(tmp_path: Path, stage: int, bf16: bool) -> None:
    straight = TinyRun(tmp_path / "straight", stage=stage, bf16=bf16)
    straight.train("--max_steps=9", "--checkpoint_freq=0")
    stopped = TinyRun(tmp_path / "stopped", stage=stage, bf16=bf16)
    # The schedule's length is in ds_config.json, so that a shorter run follows the same rates.
    stopped.train("--max_steps=4", "--checkpoint_freq=0")
    result = stopped.train("--max_steps=9", "--checkpoint_freq=0")
    assert "Resumed from checkpoint at step 4" in result.stdout
    assert_same_bits(straight, stopped)


@pytest.mark.parametrize("stage", [2, 3])
def test_killed_after_a_checkpoint(tmp_path: Path, stage: int) -> None:
    killed = TinyRun(tmp_path / "killed", stage=stage)
    with killed.running("--max_steps=100000", "--checkpoint_freq=5", "--keep_last=2") as process:
        ranks = children_of(process)
        for pid in [process.pid, *map(int, ranks)]:
            os.kill(pid, signal.SIGKILL)
    wait_until_ended(ranks)
    saved = int((killed.checkpoints / "latest").read_text().strip().split("-")[-1].removesuffix("steps"))
    steps = saved + 5
    result = killed.train(f"--max_steps={steps}", "--checkpoint_freq=0")
    assert f"Resumed from checkpoint at step {saved}" in result.stdout
    straight = TinyRun(tmp_path / "straight", stage=stage)
    straight.train(f"--max_steps={steps}", "--checkpoint_freq=0")
    assert_same_bits(straight, killed)


def test_finished_run_trains_no_further_step(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=3")
    before = final_states(run)
    result = run.train("--max_steps=3")
    assert "finished already: step 3 of 3" in result.stdout
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    after = final_states(run)
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


@pytest.mark.parametrize(("ranks", "stage"), [(1, 0), (1, 3), (4, 2), (4, 1)])
def test_other_ranks_and_stages_resume(tmp_path: Path, ranks: int, stage: int) -> None:
    straight = TinyRun(tmp_path / "straight", ranks=2, stage=2)
    straight.train("--max_steps=8", "--checkpoint_freq=0")
    moved = TinyRun(tmp_path / "moved", ranks=2, stage=2)
    moved.train("--max_steps=4", "--checkpoint_freq=0")
    # The same global batch of 8 sequences.
    elsewhere = TinyRun(tmp_path / "moved", ranks=ranks, stage=stage, micro_batch=4 // ranks)
    elsewhere.train("--max_steps=8", "--checkpoint_freq=0")
    losses = [line["loss"] for line in straight.metrics()]
    assert [line["loss"] for line in elsewhere.metrics()] == pytest.approx(losses, rel=1e-5)


def test_other_data_is_not_a_silent_change(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=2")
    assert "the data is not that of" not in run.train("--max_steps=3").stderr
    other = write_tokens(tmp_path / "other.h5", np.arange(200) % VOCAB_SIZE, VOCAB_SIZE)
    run.data = other
    result = run.train("--max_steps=4")
    assert result.stderr.count("mpzero: warning: the data is not that of") == 1
    assert "187 sequences of 16 tokens" in result.stderr
    assert "now 12 sequences of 16 tokens" in result.stderr


def test_another_schedule_is_not_a_silent_change(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    # No total_num_steps: the schedule is as long as the run.
    run.config = {"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 2}}}
    run.train("--max_steps=4")
    result = run.train("--max_steps=8")
    assert result.stderr.count("mpzero: warning: the length of the schedule has changed") == 1
    assert f"learning rate {run.metrics()[4]['lr']:.4g} at step 5" in result.stderr
    assert "the schedule" not in run.train("--max_steps=8").stderr


def test_keep_last(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=6", "--checkpoint_freq=1", "--keep_last=2")
    names = sorted(path.name for path in run.checkpoints.iterdir())
    assert names == [".lock", "latest", "tiny-5steps", "tiny-6steps"]
    assert run.latest.name == "tiny-6steps"
