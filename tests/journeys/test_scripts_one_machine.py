"""The first hour on one machine: each test is what a user types at ./train-singlenode.sh, and what the user sees.

What needs a cluster is in tests/slurm, with the same Slurm commands that a user types.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from own_build import reason_to_skip

from .one_machine import Machine

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or ""),
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def checkpoints(machine: Machine) -> Path:
    return machine.checkout / "checkpoints/first_run"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("SEQ_LENGTH=1000000 ./train-singlenode.sh", "--seq_length 1000000"),
        ("echo '{\"gradient_cliping\": 1}' >ds.json; DS_CONFIG=ds.json ./train-singlenode.sh", "gradient_cliping"),
    ],
)
def test_a_mistake_shows_before_any_data_is_prepared(machine, command, sentence):
    seen = machine.type(command)
    assert seen.status == 2, seen.all
    assert sentence in seen.stderr and seen.stderr.count("\n") == 1
    assert not (machine.checkout / "data").exists() and not (machine.checkout / "checkpoints").exists()


def test_a_careful_user_asks_first(machine):
    seen = machine.type("MAX_STEPS=50 ./train-singlenode.sh -- --dry_run")
    assert seen.status == 0, seen.all
    assert "Dry run: " in seen.stdout
    assert "not prepared: --train_data data/tiny_corpus-bytes/train.h5" in seen.stdout
    assert "assets/tiny_corpus" in seen.stdout and "prepare_data.py" not in seen.stdout
    assert not (machine.checkout / "data").exists()


def test_from_a_folder_of_ones_own_with_relative_paths(machine):
    mine = machine.home / "my work"
    (mine / "texts").mkdir(parents=True)
    (mine / "texts/a.txt").write_text("A text of my own, of some length.\n" * 400)
    line = "--document_separator line"
    variables = f"DATASET=texts PREPARE_ARGS='{line}' TOKENIZER=bytes CHECKPOINT_DIR=run LOG_DIR=logs MAX_STEPS=2"
    seen = machine.type(f"{variables} ../mpzero/train-singlenode.sh", cwd=mine)
    assert seen.status == 0, seen.all
    assert (mine / "run/latest").exists() and list((mine / "logs").glob("*.out"))
    shown = next(text for text in seen.stdout.splitlines() if "zero_to_fp32" in text)
    assert machine.type(shown.strip(), cwd=mine).status == 0
    assert (mine / "run/fp32/model.safetensors").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a checkout that is read-only")
def test_a_colleagues_checkout_is_used_with_folders_of_ones_own(machine):
    (machine.checkout / "logs").mkdir()
    folders = [machine.checkout, *(path for path in machine.checkout.rglob("*") if path.is_dir())]
    mine = machine.home / "mine"
    mine.mkdir()
    for folder in folders:
        folder.chmod(0o555)
    try:
        refused = machine.type("MAX_STEPS=2 ../mpzero/train-singlenode.sh", cwd=mine)
        assert refused.status == 2, refused.all
        assert "LOG_DIR=" in refused.stderr and refused.stderr.count("\n") == 1
        build = machine.type("../mpzero/train-singlenode.sh --build-only", cwd=mine)
        assert build.status == 2 and "have its owner run this script with --build-only" in build.stderr
        own = "MAX_STEPS=2 LOG_DIR=logs DATA_DIR=data CHECKPOINT_DIR=run"
        seen = machine.type(f"{own} ../mpzero/train-singlenode.sh", cwd=mine)
        assert seen.status == 0, seen.all
        assert sorted(path.name for path in mine.iterdir()) == ["data", "logs", "run"]
        shown = next(line for line in seen.stdout.splitlines() if "zero_to_fp32" in line)
        assert machine.type(shown.strip(), cwd=mine).status == 0
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_curves_in_tensorboard_while_it_trains_and_after(machine):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seen = machine.type("SINK=tensorboard MAX_STEPS=3 ./train-singlenode.sh")
    assert seen.status == 0, seen.all
    (forwarded,) = [line for line in seen.all.splitlines() if "forwarding" in line]
    assert "checkpoints/first_run/metrics.jsonl" in forwarded and "checkpoints/first_run/tensorboard" in forwarded
    assert "follow.py: 3 steps were forwarded." in seen.stdout
    assert machine.type("MAX_STEPS=4 ./train-singlenode.sh").status == 0
    # By hand, what no sink has got.
    rest = machine.type(".venv/bin/python app/follow.py checkpoints/first_run --once")
    assert rest.status == 0 and "1 step was forwarded" in rest.stdout
    (run,) = {path.parent for path in (checkpoints(machine) / "tensorboard").glob("*/events.out.tfevents.*")}
    events = accumulator.EventAccumulator(str(run))
    events.Reload()
    assert [event.step for event in events.Scalars("loss/train")] == [1, 2, 3, 4]


def wait_for(condition) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def has_steps(machine: Machine, count: int) -> bool:
    metrics = checkpoints(machine) / "metrics.jsonl"
    return metrics.exists() and metrics.read_text().count("\n") >= count


def test_ctrl_c_saves_and_the_same_command_resumes(machine):
    process = machine.start("exec ./train-singlenode.sh", MAX_STEPS="100000")
    wait_for(lambda: has_steps(machine, 2))
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 75, stdout + stderr
    tag = (checkpoints(machine) / "latest").read_text().strip()
    assert f"Interrupted; the same command resumes from checkpoints/first_run/{tag}." in stdout
    step = int(re.search(r"-(\d+)steps", tag).group(1))
    resumed = machine.type("./train-singlenode.sh", MAX_STEPS=str(step + 1))
    assert resumed.status == 0 and f"Resumed from checkpoint at step {step}" in resumed.all


def test_a_rank_that_is_killed_is_named_and_the_run_resumes(machine):
    process = machine.start("exec ./train-singlenode.sh", MAX_STEPS="100000", CHECKPOINT_FREQ="2")
    wait_for(lambda: (checkpoints(machine) / "latest").exists())
    os.kill(machine.ranks()[-1], signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 1, stdout + stderr
    assert "the same command resumes from checkpoints/first_run/" in stdout or "mpzero: error: rank" in stderr
    assert "before the first checkpoint" not in stdout
