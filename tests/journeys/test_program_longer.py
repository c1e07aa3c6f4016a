"""A user trains longer than planned: what the learning rate does, and what the run says about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny_run import TinyRun

from .program import mpzero

pytestmark = pytest.mark.e2e

LR = 0.01


def schedule(end: float, **params: object) -> dict:
    """WarmupCosineLR whose length is --max_steps, as in the shipped files."""
    return {"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 2, "cos_min_ratio": end, **params}}}


def rates(run: TinyRun) -> list[float]:
    return [line["lr"] for line in run.metrics()]


def finished(folder: Path, end: float, steps: int = 8) -> TinyRun:
    run = TinyRun(folder, ranks=1, config=schedule(end))
    run.train(f"--max_steps={steps}", "--checkpoint_freq=4")
    return run


def test_longer_without_a_word_keeps_the_last_rate(tmp_path: Path) -> None:
    """The README's MAX_STEPS=4000 after a run of 2000 steps: the learning rate does not jump."""
    run = finished(tmp_path, 0.1)
    last = rates(run)[-1]
    said = run.train("--max_steps=16")
    assert rates(run)[8:] == [last] * 8
    assert "the length of the schedule has changed: the schedule of the checkpoint is kept" in said.stderr
    assert "--schedule_on_resume" in said.stderr
    assert "the schedule is not that of" not in said.stderr


def test_where_the_schedule_ended_at_nothing_it_warms_up_again(tmp_path: Path) -> None:
    run = finished(tmp_path, 0.0, steps=64)
    last = rates(run)[-1]
    said = run.train("--max_steps=80")
    new = rates(run)[64:]
    assert "warms up again" in said.stderr
    assert new[0] == last
    assert 0.99 * LR < max(new) <= LR
    assert new[-1] < LR / 10
    assert "at step 65" in said.stderr


@pytest.mark.parametrize("way", ["keep", "rewarm", "extend"])
def test_the_user_chooses(tmp_path: Path, way: str) -> None:
    run = finished(tmp_path, 0.1)
    last = rates(run)[-1]
    said = run.train("--max_steps=16", f"--schedule_on_resume={way}")
    assert "mpzero: warning: the" not in said.stderr
    assert f"--schedule_on_resume {way}" in said.stdout
    assert "Learning rate: " in said.stdout
    new = rates(run)[8:]
    whole = TinyRun(tmp_path / "whole", ranks=1, config=schedule(0.1))
    whole.train("--max_steps=16")
    if way == "keep":
        assert new == [last] * 8
    if way == "rewarm":
        assert new[0] == last
        assert 0.9 * LR < max(new) <= LR
        assert new[-1] == pytest.approx(rates(whole)[-1])  # the end of the schedule of 16 steps
    if way == "extend":
        assert new == rates(whole)[8:]


@pytest.mark.parametrize("way", [None, "rewarm", "keep"])
def test_the_same_command_again_changes_nothing_twice(tmp_path: Path, way: str | None) -> None:
    """A requeued job repeats its command: rates and losses are those of a run that was not interrupted."""
    flags = ["--max_steps=20", "--checkpoint_freq=4"] + ([f"--schedule_on_resume={way}"] if way else [])
    runs = [finished(tmp_path / name, 0.1) for name in ("one", "two")]
    runs[0].train(*flags)
    runs[1].train(*flags)
    # As if the second had been killed after step 12.
    for step in (16, 20):
        (runs[1].checkpoints / f"tiny-{step}steps").rename(tmp_path / f"away-{step}")
    (runs[1].checkpoints / "latest").write_text("tiny-12steps")
    again = runs[1].train(*flags)
    assert "the length of the schedule has changed" not in again.stderr
    assert "Resumed from checkpoint at step 12" in again.stdout
    keys = ("step", "lr", "loss", "grad_norm")
    one, two = ([[line[key] for key in keys] for line in run.metrics()] for run in runs)
    assert one == two


def test_an_unfinished_run_goes_on_without_a_jump(tmp_path: Path) -> None:
    """Stopped at step 4 of 8, then 12: the planned schedule to its end, then its last rate."""
    run = TinyRun(tmp_path, ranks=1, config=schedule(0.1))
    run.train("--max_steps=8", "--checkpoint_freq=4")
    planned = rates(run)
    (run.checkpoints / "tiny-8steps").rename(tmp_path / "away")
    (run.checkpoints / "latest").write_text("tiny-4steps")
    run.train("--max_steps=12")
    assert rates(run) == planned + [planned[-1]] * 4


def test_a_new_learning_rate_is_the_new_schedule(tmp_path: Path) -> None:
    run = finished(tmp_path, 0.1)
    config = schedule(0.1)
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 0.002}}
    run.config = config
    said = run.train("--max_steps=16")
    assert "the schedule is not that of" in said.stderr
    assert max(rates(run)[8:]) < 0.002


def test_warmup_stable_decay_goes_on_where_it_is_stable(tmp_path: Path) -> None:
    """The schedule for runs whose length is not known: a checkpoint from before the decay resumes without a jump."""
    run = TinyRun(tmp_path, ranks=1)
    flags = ["--lr_scheduler_type=warmup_stable_decay", "--warmup_steps=2", "--num_decay_steps=4"]
    write_config_without_scheduler(run)
    run.train(*flags, "--max_steps=12", "--checkpoint_freq=4")
    assert rates(run)[:9] == [0.0, LR / 2] + [LR] * 7
    assert rates(run)[9:] == sorted(rates(run)[9:], reverse=True)
    assert rates(run)[-1] < LR / 4
    for step in (8, 12):
        (run.checkpoints / f"tiny-{step}steps").rename(tmp_path / f"away-{step}")
    (run.checkpoints / "latest").write_text("tiny-4steps")
    said = run.train(*flags, "--max_steps=20")
    assert "the length of the schedule has changed" not in said.stderr
    assert rates(run)[4:17] == [LR] * 13
    assert rates(run)[-1] < LR / 4


def write_config_without_scheduler(run: TinyRun) -> None:
    """ds_config.json with the optimizer alone: --lr_scheduler_type stands for the scheduler."""
    make = run.flags

    def flags() -> list[str]:
        made = make()
        path = run.folder / "ds_config.json"
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "scheduler"}))
        return made

    run.flags = flags


def test_a_dry_run_shows_the_rates_to_come(tmp_path: Path) -> None:
    run = finished(tmp_path, 0.1)
    result = mpzero("train", *run.flags(), "--max_steps=16", "--dry_run")
    assert result.returncode == 0, result.stderr
    assert f"{rates(run)[-1]:.4g} at step 9" in result.stdout
    assert "the schedule of the checkpoint is kept" in result.stderr


@pytest.mark.parametrize("way", ["keep", "rewarm", "extend"])
def test_a_dry_run_shows_the_rates_that_the_run_then_has(tmp_path: Path, way: str) -> None:
    run = finished(tmp_path, 0.1)
    flags = ["--max_steps=16", f"--schedule_on_resume={way}"]
    result = mpzero("train", *run.flags(), *flags, "--dry_run")
    shown = {int(step): float(rate) for rate, step in re.findall(r"([\d.e-]+) at step (\d+)", result.stdout)}
    run.train(*flags)
    assert {9, 16} <= set(shown) and (10 in shown) == (way == "rewarm"), result.stdout
    assert shown == {step: float(f"{rates(run)[step - 1]:.4g}") for step in shown}
