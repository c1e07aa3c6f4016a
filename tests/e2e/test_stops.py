"""A run that is asked to stop saves its state, ends with status 75, and resumes as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from live_run import LiveRun, hang_at
from test_resume import assert_same_bits
from tiny_run import VOCAB_SIZE, TinyRun
from trainer import write_tokens

pytestmark = pytest.mark.e2e

STOPPED = 75
INTERRUPTED = 130
ENDLESS = ("--max_steps=100000", "--checkpoint_freq=0")


def stopped_step(live: LiveRun) -> int:
    found = re.search(r"^Stopped by (\w+)( to rank \d+)? after step (\d+) and saved", live.output, re.M)
    assert found, live.output + live.errors
    return int(found.group(3))


def assert_resumes_with_the_same_bits(tmp_path: Path, stopped: TinyRun, step: int, *flags: object) -> None:
    steps = step + 4
    result = stopped.train(f"--max_steps={steps}", "--checkpoint_freq=0", *flags)
    assert f"Resumed from checkpoint at step {step}" in result.stdout
    straight = TinyRun(tmp_path / "straight", stage=stopped.stage, ranks=stopped.ranks)
    straight.train(f"--max_steps={steps}", "--checkpoint_freq=0", *flags)
    assert_same_bits(straight, stopped)


@pytest.mark.parametrize(("number", "rank", "stage"), [(signal.SIGTERM, 0, 2), (signal.SIGHUP, 1, 3)])
def test_a_signal_to_one_rank_stops_all_with_the_state_saved(
    tmp_path: Path, number: signal.Signals, rank: int, stage: int
) -> None:
    run = TinyRun(tmp_path / "run", stage=stage)
    with LiveRun(run, *ENDLESS) as live:
        live.wait_for_step(3)
        live.signal(number, rank)
        assert live.finish() == STOPPED, live.errors
    step = stopped_step(live)
    assert f"Stopped by {number.name} to rank {rank} after step {step}" in live.output
    assert run.latest.name == f"tiny-{step}steps"
    assert run.metrics()[-1]["step"] == step
    end = json.loads((run.folder / "events.jsonl").read_text().splitlines()[-1])
    assert (end["event"], end["status"], end["reason"]) == ("end", "stopped", f"{number.name} to rank {rank}")
    assert not (run.checkpoints / "failures").exists()
    assert_resumes_with_the_same_bits(tmp_path, run, step)


def test_what_mpirun_forwards_stops_the_run(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with LiveRun(run, *ENDLESS) as live:
        live.wait_for_step(2)
        live.process.send_signal(signal.SIGUSR1)
        assert live.finish() == STOPPED, live.errors
    assert run.latest.name == f"tiny-{stopped_step(live)}steps"


def test_a_signal_that_is_repeated_until_the_ranks_are_gone_does_not_change_how_they_end(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with LiveRun(run, *ENDLESS) as live:
        live.wait_for_step(2)
        ranks = live.ranks()
        while live.process.poll() is None:
            for pid in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
            time.sleep(0.0005)
        assert live.finish() == STOPPED, live.errors
    assert run.latest.name == f"tiny-{stopped_step(live)}steps"


def test_validation_is_interrupted(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run")
    # Minutes of validation.
    data = write_tokens(tmp_path / "validation.h5", np.arange(2_000_000) % VOCAB_SIZE, VOCAB_SIZE)
    validation = [f"--validation_data={data}", "--validation_freq=3", "--validation_sequences=0"]
    with LiveRun(run, *ENDLESS, *validation) as live:
        live.wait_for_step(2)
        time.sleep(2)
        live.signal(signal.SIGTERM, 1)
        assert live.finish() == STOPPED, live.errors
    assert stopped_step(live) == 3
    assert run.latest.name == "tiny-3steps"
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    assert "validation_loss" not in run.metrics()[-1]
    assert_resumes_with_the_same_bits(tmp_path, run, 3)


def test_a_checkpoint_in_progress_is_waited_for(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run")
    with LiveRun(run, "--max_steps=100000", "--checkpoint_freq=1", "--keep_last=2") as live:
        live.wait_for_output("Saved checkpoint")
        live.signal(signal.SIGTERM, 0, 1)
        assert live.finish() == STOPPED, live.errors
    step = stopped_step(live)
    assert_resumes_with_the_same_bits(tmp_path, run, step)


def test_a_save_that_would_exceed_the_grace_period_is_not_started(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    flags = ("--max_steps=100000", "--checkpoint_freq=2", "--async_save=false")
    with LiveRun(run, *flags, "--grace_period=0.001") as live:
        live.wait_for_output("Saved checkpoint")
        live.signal(signal.SIGTERM, 0)
        status = live.finish()
    if status == STOPPED:
        # The step at whose end it stopped had its checkpoint already.
        assert run.latest.name == f"tiny-{stopped_step(live)}steps"
        pytest.fail("the signal came when there was nothing to save")
    assert status == 1
    saved = int(run.latest.name.split("-")[1].removesuffix("steps"))
    (line,) = [line for line in live.errors.splitlines() if "error" in line and "stopped by" in line]
    assert line.startswith("mpzero: error: stopped by SIGTERM to rank 0 after step ")
    assert f"--grace_period 0.001 were left; the checkpoint for step {saved} remains" in line
    assert not list(run.checkpoints.glob("*.tmp"))


def test_interrupted_once(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, ranks=1)
    with LiveRun(run, *ENDLESS) as live:
        live.wait_for_step(2)
        live.signal(signal.SIGINT, 0)
        assert live.finish() == STOPPED, live.errors
    assert "interrupt again" in live.errors
    assert run.latest.name == f"tiny-{stopped_step(live)}steps"


def test_interrupted_twice(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with LiveRun(run, *ENDLESS) as live:
        live.signal_waiting_rank(signal.SIGINT)
        live.wait_for(lambda: "interrupt again" in live.errors, "word on the first interruption")
        live.signal(signal.SIGINT, 0)
        assert live.finish() == INTERRUPTED, live.errors
    assert "interrupted twice: stopped immediately without saving" in live.errors
    end = json.loads((run.folder / "events.jsonl").read_text().splitlines()[-1])
    assert (end["event"], end["status"], end["reason"]) == ("end", "stopped", "interrupted twice")
    assert not (run.checkpoints / "latest").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stop_before_the_first_step_ends_immediately(
    tmp_path: Path, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=1")
    before = {path.name for path in run.checkpoints.iterdir()}
    # Opened after the folder is locked.
    hang_at("metrics.jsonl", run, monkeypatch)
    with LiveRun(run, *ENDLESS) as live:
        live.wait_for(lambda: any(tmp_path.glob("hangs-*")), "rank 0 that hangs")
        live.wait_for(lambda: len(live.ranks()) == run.ranks, "ranks")
        live.signal(signal.SIGTERM, rank)
        assert live.finish() == STOPPED
    assert live.errors.count("stopped before the first step") == 1
    # It did not end normally: the next start finds that the process of the record is gone.
    (owner,) = {path.name for path in run.checkpoints.iterdir()} - before
    assert owner.startswith(".owner-")
