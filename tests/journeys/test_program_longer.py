"""A user trains longer than planned: what the learning rate does, and what the run says about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tiny_run import TinyRun

from .program import mpzero

pytestmark = pytest.mark.e2e


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
    """The README's MAX_STEPS=2000 after a run of 1000 steps: the learning rate does not jump."""
    run = finished(tmp_path, 0.1)
    last = rates(run)[-1]
    said = run.train("--max_steps=16")
    assert rates(run)[8:] == [last] * 8
    assert "--schedule_on_resume" in said.stdout
    assert "schedule" not in said.stderr
    assert "the schedule differs from" not in said.stderr


@pytest.mark.parametrize("way", [None, "rewarm"])
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
    assert "schedule's length has changed" not in again.stdout + again.stderr
    assert "Resumed from checkpoint at step 12" in again.stdout
    keys = ("step", "lr", "loss", "grad_norm")
    one, two = ([[line[key] for key in keys] for line in run.metrics()] for run in runs)
    assert one == two


@pytest.mark.parametrize("way", ["keep", "rewarm", "extend"])
def test_a_dry_run_shows_the_rates_that_the_run_then_has(tmp_path: Path, way: str) -> None:
    run = finished(tmp_path, 0.1)
    flags = ["--max_steps=16", f"--schedule_on_resume={way}"]
    result = mpzero("train", *run.flags(), *flags, "--dry_run")
    shown = {int(step): float(rate) for rate, step in re.findall(r"([\d.e-]+) at step (\d+)", result.stdout)}
    run.train(*flags)
    assert {9, 16} <= set(shown) and (10 in shown) == (way == "rewarm"), result.stdout
    assert shown == {step: float(f"{rates(run)[step - 1]:.4g}") for step in shown}
