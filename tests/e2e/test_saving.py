"""Checkpoints that are written during training: their content; full disks, damaged checkpoints and killed ranks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_resume import assert_same_bits, curve, final_states
from tiny_run import MODEL, TinyRun
from trainer import BUILD, ENVIRONMENT, children_of, command, num_gpus, wait_until_ended

pytestmark = pytest.mark.e2e

LONG = "MPZERO_LONG_TESTS" in os.environ
# The schedule's length is in ds_config.json, so that all runs follow the same rates.
STEPS = 8


def checkpoint_command(*words: object) -> subprocess.CompletedProcess[str]:
    program = [str(BUILD / "bin" / "mpzero"), "checkpoint", *map(str, words)]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)


def flip_last_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("stage", [0, 3])
def test_saving_during_training_writes_the_same_as_waiting(tmp_path: Path, stage: int) -> None:
    runs = {}
    for mode in ("true", "false"):
        run = runs[mode] = TinyRun(tmp_path / mode, stage=stage)
        result = run.train(f"--max_steps={STEPS}", "--checkpoint_freq=3", f"--async_save={mode}")
        num_saves = result.stdout.count("during training, ")
        assert num_saves == (3 if mode == "true" else 0), result.stdout
        assert sorted(path.name for path in run.checkpoints.iterdir()) == [
            ".lock",
            "latest",
            "tiny-3steps",
            "tiny-6steps",
            "tiny-8steps",
        ]
    assert curve(runs["true"]) == curve(runs["false"])
    for step in (3, 6, 8):
        for run in runs.values():
            (run.checkpoints / "latest").write_text(f"tiny-{step}steps\n")
        assert_same_bits(runs["true"], runs["false"])
    blocked = [line["step"] for line in runs["true"].metrics() if "checkpoint_blocked_seconds" in line]
    # Saved after steps 3 and 6: reported with the next ones.
    assert {4, 7} <= set(blocked)
    assert blocked[0] == 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs with room for a few checkpoints of the tiny model."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_gives_up_the_checkpoint_and_not_the_run(tmp_path: Path, small_disk: Path) -> None:
    run = TinyRun(tmp_path / "run")
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    run.checkpoints.symlink_to(small_disk)
    # Three of them fit. The run continues to its end, but fails if its last checkpoint cannot be saved.
    result = run.train("--max_steps=6", "--checkpoint_freq=1", check=False)
    assert result.returncode == 1, result.stderr
    messages = [line for line in result.stderr.splitlines() if "could not save" in line]
    # The last one is tried three times more.
    steps = [re.search(r"checkpoint for step (\d)", line)[1] for line in messages]
    assert steps == ["4", "5", "6", "6", "6", "6"], result.stderr
    assert all("No space left on device" in line and "the checkpoint for step 3 remains" in line for line in messages)
    assert all("warning: " in line for line in messages[:-1])
    assert messages[-1].startswith("mpzero: error: ")
    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4, 5, 6]
    assert run.latest.name == "tiny-3steps"
    assert checkpoint_command("verify", run.checkpoints).returncode == 0
    # With fewer checkpoints there is space.
    assert checkpoint_command("prune", run.checkpoints, "--keep_last", 1).returncode == 0
    result = run.train("--max_steps=8", "--keep_last=1", "--checkpoint_freq=1")
    assert "Resumed from checkpoint at step 3" in result.stdout
    assert run.latest.name == "tiny-8steps"


def test_a_damaged_checkpoint_is_replaced_by_the_previous_one(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run")
    run.train("--max_steps=6", "--checkpoint_freq=2")
    intact = tmp_path / "whole"
    shutil.copytree(run.checkpoints, intact)
    straight = TinyRun(tmp_path / "straight")
    straight.train(f"--max_steps={STEPS}", "--checkpoint_freq=0")

    shard = "zero_pp_rank_1_mp_rank_00_optim_states.h5"
    damages = {
        "a flipped bit": lambda folder: flip_last_bit(folder / "tiny-6steps" / shard),
        "no folder": lambda folder: shutil.rmtree(folder / "tiny-6steps"),
        "latest is garbage": lambda folder: (folder / "latest").write_bytes(b"\x00\xff/.."),
    }
    for name, damage in damages.items():
        shutil.rmtree(run.checkpoints)
        shutil.copytree(intact, run.checkpoints)
        damage(run.checkpoints)
        strict = run.train(f"--max_steps={STEPS}", "--resume_strict", check=False)
        assert strict.returncode == 2, name
        assert "Resumed" not in strict.stdout
        result = run.train(f"--max_steps={STEPS}", "--checkpoint_freq=0")
        step = 6 if name.startswith("latest") else 4
        assert f"Resumed from checkpoint at step {step}" in result.stdout, name
        (line,) = [line for line in result.stderr.splitlines() if "the newest complete checkpoint" in line]
        assert f"resumes from {run.checkpoints / f'tiny-{step}steps'}" in line
        assert "tiny-6steps" in line or name.startswith("latest"), line
        assert_same_bits(straight, run)


def test_no_fresh_start_without_an_intact_checkpoint(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=4", "--checkpoint_freq=2")
    for folder in run.checkpoints.glob("tiny-*"):
        (folder / "manifest.json").write_text("{}")
    result = run.train("--max_steps=6", check=False)
    assert result.returncode == 2
    assert "the run has no other complete checkpoint" in result.stderr
    # A checkpoint that is itself named is not replaced by another one.
    result = run.train("--max_steps=6", f"--resume_from_checkpoint={run.checkpoints / 'tiny-2steps'}", check=False)
    assert result.returncode == 2
    assert "tiny-2steps/manifest.json is damaged" in result.stderr


def test_killed_while_checkpoints_are_written(tmp_path: Path) -> None:
    """SIGKILL to one rank, or to all, at any time of a run that saves continuously."""
    run = TinyRun(tmp_path / "run")
    straight = TinyRun(tmp_path / "straight")
    saved = 0
    for attempt in range(100 if LONG else 3):
        process = subprocess.Popen(
            command(*run.flags(), "--max_steps=100000", "--checkpoint_freq=1", "--keep_last=2", ranks=run.ranks),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Saved checkpoint"):
                break
        time.sleep(0.003 * attempt)
        ranks = children_of(process)
        victims = [[ranks[0]], [ranks[1]], ranks][attempt % 3]
        for pid in victims:
            os.kill(int(pid), signal.SIGKILL)
        process.stdout.read()
        process.wait(timeout=60)
        wait_until_ended(ranks)
        checked = checkpoint_command("verify", run.latest)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        step = int(run.latest.name.split("-")[1].removesuffix("steps"))
        assert step > saved
        saved = step
    run.train(f"--max_steps={saved + 2}", "--checkpoint_freq=0")
    straight.train(f"--max_steps={saved + 2}", "--checkpoint_freq=0")
    assert curve(run) == curve(straight)
    ours, theirs = final_states(run), final_states(straight)
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


def test_ls_verify_and_prune(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=4", "--checkpoint_freq=1")
    folder = run.checkpoints
    listed = checkpoint_command("ls", folder)
    assert listed.returncode == 0
    heading, *rows = listed.stdout.splitlines()
    assert heading.split()[:2] == ["checkpoint", "step"]
    assert [row.split()[:2] for row in rows] == [[f"tiny-{step}steps", str(step)] for step in (4, 3, 2, 1)]
    assert [row.endswith("complete, latest") for row in rows] == [True, False, False, False]

    verified = checkpoint_command("verify", folder)
    assert verified.returncode == 0
    assert verified.stdout.count("good") == 4
    flip_last_bit(folder / "tiny-4steps" / "zero_pp_rank_0_mp_rank_00_optim_states.h5")
    verified = checkpoint_command("verify", folder)
    assert verified.returncode == 1
    assert (verified.stdout.count("good"), verified.stdout.count("  damaged")) == (3, 1)
    assert "tiny-4steps/zero_pp_rank_0_mp_rank_00_optim_states.h5 is damaged" in verified.stdout
    assert checkpoint_command("verify", folder, "-t", "tiny-3steps").returncode == 0
    assert checkpoint_command("verify", folder / "tiny-4steps").returncode == 1

    # The damaged one does not count: 3 and 2 are kept.
    (folder / "tiny-9steps.tmp").mkdir()
    tried = checkpoint_command("prune", folder, "--keep_last", 2, "--dry_run")
    assert tried.returncode == 0
    assert "would remove" in tried.stdout
    assert "tiny-1steps" in tried.stdout
    assert (folder / "tiny-1steps").exists()
    assert checkpoint_command("prune", folder, "--keep_last", 2).returncode == 0
    names = sorted(path.name for path in folder.glob("tiny-*"))
    assert names == ["tiny-2steps", "tiny-3steps", "tiny-4steps"]

    for words in (
        [],
        ["sl", folder],
        ["ls"],
        ["ls", tmp_path / "absent"],
        ["prune", folder],
        ["prune", folder, "--keep_last", 0],
        ["verify", tmp_path / "empty"],
    ):
        (tmp_path / "empty").mkdir(exist_ok=True)
        failed = checkpoint_command(*words)
        assert failed.returncode == 2, words
        assert failed.stderr.startswith("mpzero: error: ")
        assert failed.stderr.count("\n") == 1


class ClippedRun(TinyRun):
    """Qwen3-shaped, 17 million parameters, AdamW on the host; its states take longer to write than a step takes."""

    LARGE = MODEL | {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4, "head_dim": 128}

    def __init__(self, folder: Path, clipping: float) -> None:
        # A rate so small that norms scatter around the same value throughout.
        optimizer = {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.95], "weight_decay": 0.1}}
        zero = {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
        config = {"gradient_clipping": clipping, "optimizer": optimizer, "zero_optimization": zero}
        super().__init__(folder, ranks=1, bf16=True, device="cuda", config=config)
        (folder / "tiny.json").write_text(json.dumps(self.LARGE))

    def norms(self) -> list[float]:
        return [line["grad_norm"] for line in self.metrics()]


def checksums(checkpoint: Path) -> dict[str, list]:
    files = json.loads((checkpoint / "manifest.json").read_text())["content"]["files"]
    return {file["name"]: file["datasets"] for file in files if "optim_states" in file["name"]}


@pytest.mark.skipif(num_gpus() < 1, reason="no GPU")
def test_clipped_and_unclipped_gpu_steps_leave_concurrent_checkpoints_intact(tmp_path: Path) -> None:
    """Updates on the host ahead of the norm turn out wrong at random while checkpoints are written."""
    steps, frequency = 300, 5
    trial = ClippedRun(tmp_path / "trial", clipping=1e9)
    trial.train("--max_steps=40", "--checkpoint_freq=1000")
    threshold = statistics.median(trial.norms())
    runs = {}
    for mode in ("true", "false"):
        run = runs[mode] = ClippedRun(tmp_path / mode, clipping=threshold)
        run.train(
            f"--max_steps={steps}", f"--checkpoint_freq={frequency}", f"--async_save={mode}", "--deterministic=true"
        )
    assert curve(runs["true"]) == curve(runs["false"])
    clipped = [norm > threshold for norm in runs["true"].norms()]
    # After a save: an update ahead of the norm that was right, then one that was wrong, and vice versa.
    assert sum(not clipped[i] and clipped[i + 1] for i in range(frequency, steps - 1, frequency)) >= 5
    for step in range(frequency, steps + 1, frequency):
        saved, waited = (checksums(run.checkpoints / f"tiny-{step}steps") for run in runs.values())
        assert saved
        assert saved == waited, f"the checkpoint of step {step}"
    assert checkpoint_command("verify", runs["true"].checkpoints).returncode == 0
