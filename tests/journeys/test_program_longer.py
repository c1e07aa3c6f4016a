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


@pytest.mark.parametrize("way", ["keep", "rewarm", "extend"])
def test_a_dry_run_shows_the_rates_that_the_run_then_has(tmp_path: Path, way: str) -> None:
    run = TinyRun(tmp_path, ranks=1, config=schedule(0.1))
    run.train("--max_steps=8", "--checkpoint_freq=4")
    last = rates(run)[-1]
    # Without a word the rate does not jump: the last one is kept.
    flags = ["--max_steps=16", *([f"--schedule_on_resume={way}"] if way != "keep" else [])]
    result = mpzero("train", *run.flags(), *flags, "--dry_run")
    shown = {int(step): float(rate) for rate, step in re.findall(r"([\d.e-]+) at step (\d+)", result.stdout)}
    said = run.train(*flags)
    if way == "keep":
        assert rates(run)[8:] == [last] * 8 and "--schedule_on_resume" in said.stdout
        assert "schedule" not in said.stderr
    assert {9, 16} <= set(shown) and (10 in shown) == (way == "rewarm"), result.stdout
    assert shown == {step: float(f"{rates(run)[step - 1]:.4g}") for step in shown}
