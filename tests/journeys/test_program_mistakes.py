"""Mistakes of the first hour, and the sentence that each of them gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from refusals import the_sentence
from tiny_run import TinyRun

from .program import mpzero

pytestmark = pytest.mark.e2e


@pytest.fixture
def run(tmp_path: Path) -> TinyRun:
    return TinyRun(tmp_path, ranks=1)


def refused(run: TinyRun, *flags: object, **options) -> str:
    result = mpzero("train", *run.flags(), *flags, **options)
    assert result.returncode == 2, result.stdout + result.stderr
    return the_sentence(result.stderr)


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--fp16", "mpzero trains in bf16"),
        ("--report_to=wandb", "app/follow.py"),
        ("--eval_strategy=steps", "--validation_freq?"),
        ("--lr_scheduler_kwargs={}", "--num_decay_steps"),
        ("--output_dir=x", "--checkpoint_dir?"),
        ("--per_device_eval_batch_size=4", "validation reports only the loss"),
    ],
)
def test_flags_of_the_trainer_get_what_to_do_instead(run: TinyRun, flag: str, hint: str) -> None:
    sentence = refused(run, flag, "--dry_run")
    assert flag.split("=")[0] in sentence and hint in sentence


def test_more_ranks_than_any_machine_has(run: TinyRun) -> None:
    assert "--world_size 99999999999 is too large" in refused(run, "--dry_run", "--world_size=99999999999")


def test_more_tokens_than_a_number_holds(run: TinyRun) -> None:
    seen = mpzero("train", *run.flags(), "--dry_run", "--max_steps=9000000000000000000")
    assert seen.returncode == 0, seen.stderr
    assert "more than 9223372036854775807 tokens in total" in seen.stdout


def test_a_dry_run_shows_the_epochs(run: TinyRun) -> None:
    # 187 sequences in the file, 4 a step.
    assert ", 4 epochs of the training data" in mpzero("train", *run.flags(), "--dry_run", "--max_steps=187").stdout


def test_a_tag_that_is_not_there(run: TinyRun) -> None:
    run.train("--max_steps=2")
    for named in (run.checkpoints / "tiny-3steps", f"{run.checkpoints / 'tiny-3steps'}/"):
        sentence = refused(run, "--dry_run", f"--resume_from_checkpoint={named}")
        assert f"checkpoint 'tiny-3steps' does not exist in {run.checkpoints}; use one of tiny-2steps" in sentence


def test_a_checkpoint_folder_that_cannot_be_written(run: TinyRun) -> None:
    file = run.folder / "file"
    file.write_text("")
    for folder in (file, file / "below"):
        flags = [flag for flag in run.flags() if not flag.startswith("--checkpoint_dir")]
        result = mpzero("train", *flags, "--dry_run", f"--checkpoint_dir={folder}")
        assert result.returncode == 2
        assert f"--checkpoint_dir {folder} is not writable" in the_sentence(result.stderr)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_checkpoint_folder_of_somebody_else(run: TinyRun) -> None:
    run.checkpoints.mkdir()
    run.checkpoints.chmod(0o500)
    assert "Permission denied" in refused(run, "--dry_run")


def test_a_rate_has_no_digits_that_mean_nothing(tmp_path: Path) -> None:
    config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.003}}}
    seen = mpzero("train", *TinyRun(tmp_path, config=config).flags(), "--dry_run").stdout
    assert "lr 0 to 0.003 to 0.0003 " in seen


def test_a_size_without_its_unit(tmp_path: Path) -> None:
    result = mpzero(tmp_path, tmp_path / "out", "--max_shard_size=5", program="zero_to_fp32")
    assert result.returncode == 2
    assert result.stderr.startswith("zero_to_fp32: error: --max_shard_size 5 means 5 bytes; add a unit")
