"""A user starts something else in the folder of a run: dry run and run say the same, and nothing is passed over."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from refusals import the_sentence
from tiny_run import VOCAB_SIZE, TinyRun
from trainer import write_tokens

from .program import mpzero

pytestmark = pytest.mark.e2e


@pytest.fixture
def finished(tmp_path: Path) -> TinyRun:
    run = TinyRun(tmp_path, ranks=1)
    run.train("--max_steps=2")
    return run


def both(run: TinyRun, *flags: object, **options) -> str:
    """What the dry run and the run refuse, which is the same sentence with status 2."""
    asked = mpzero("train", *run.flags(), "--dry_run", *flags, **options)
    started = mpzero("train", *run.flags(), *flags, **options)
    assert (asked.returncode, started.returncode) == (2, 2), asked.stdout + started.stdout
    assert the_sentence(asked.stderr) == the_sentence(started.stderr)
    assert "., " not in the_sentence(asked.stderr)
    return the_sentence(asked.stderr)


def test_a_finished_run_is_not_taken_for_one_with_another_learning_rate(finished: TinyRun) -> None:
    finished.config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95]}}}
    sentence = both(finished, "--max_steps=2")
    assert f"{finished.latest} is at or past the last step" in sentence
    assert "lr 0.01 -> 0.001" in sentence
    assert "raise --max_steps above 2" in sentence
    assert "in a different --checkpoint_dir, or with --overwrite" in sentence
    # Each of the remedies works.
    assert finished.train("--max_steps=3").returncode == 0
    assert finished.train("--max_steps=2", "--overwrite").returncode == 0


def test_a_finished_run_on_other_data_names_the_data_first(finished: TinyRun, tmp_path: Path) -> None:
    finished.data = tmp_path / "other.h5"
    write_tokens(finished.data, np.arange(3001) % VOCAB_SIZE, VOCAB_SIZE)
    finished.config = {"gradient_clipping": 0.5}
    sentence = both(finished, "--max_steps=2")
    assert "(train_data 3001 tokens" in sentence
    assert "gradient_clipping 1 -> 0.5" in sentence
    assert "in a different --checkpoint_dir, or with --overwrite" in sentence


def test_a_sentence_ends_once(finished: TinyRun) -> None:
    finished.config = {"scheduler": scheduler(total_num_steps=2)}
    sentence = both(finished, "--max_steps=4", "--schedule_on_resume=rewarm")
    assert "or start a new run in a different --checkpoint_dir" in sentence


def test_tasks_of_a_job_array_are_told_to_have_folders_of_their_own(finished: TinyRun) -> None:
    task = {"SLURM_ARRAY_TASK_ID": "2"}
    sentence = both(finished, "--max_steps=2", "--seed=7", env=task)
    assert "checkpoints/$SLURM_ARRAY_TASK_ID" in sentence


def test_a_dry_run_compares_with_the_checkpoint_before_the_data_is_prepared(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, ranks=1, config={"scheduler": scheduler(total_num_steps=4)})
    run.train("--max_steps=4")
    run.config = {"scheduler": scheduler(total_num_steps=40), "gradient_clipping": 0.5}
    with_data = mpzero("train", *run.flags(), "--dry_run", "--max_steps=40")
    run.data.unlink()
    without = mpzero("train", *run.flags(), "--dry_run", "--max_steps=40")
    assert without.returncode == 0, without.stderr
    assert "gradient_clipping 1 -> 0.5" in without.stdout
    assert "train_data" not in next(line for line in without.stdout.splitlines() if "Changed since" in line)
    # The schedule of the checkpoint goes on, whether the data is there or not.
    rates = [line for line in with_data.stdout.splitlines() if line.startswith("  learning rate")]
    assert rates and rates[0] in without.stdout
    assert "schedule's length has changed" in without.stdout
    # A finished run is another one without its data, too.
    refused = mpzero("train", *run.flags(), "--dry_run", "--max_steps=4")
    assert refused.returncode == 2 and "is at or past the last step" in the_sentence(refused.stderr)


def scheduler(**params: int) -> dict:
    return {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 2, "cos_min_ratio": 0.1, **params}}


def test_a_dry_run_compares_the_weights_that_a_run_began_with(tmp_path: Path) -> None:
    first = TinyRun(tmp_path / "first", ranks=1)
    first.train("--max_steps=1")
    weights, copy, others = tmp_path / "weights", tmp_path / "copy", tmp_path / "others"
    assert mpzero(first.checkpoints, weights, program="zero_to_fp32").returncode == 0
    shutil.copytree(weights, copy)
    first.train("--max_steps=4")
    assert mpzero(first.checkpoints, others, program="zero_to_fp32").returncode == 0
    run = TinyRun(tmp_path / "run", ranks=1)
    run.train("--max_steps=1", f"--init_from={weights}")
    sentence = both(run, "--max_steps=3", f"--init_from={others}")
    assert f"belongs to a run that started from the weights of {weights}" in sentence
    assert f"not from the weights of --init_from {others}" in sentence
    # The same weights elsewhere are the same.
    for same in (weights, copy):
        assert mpzero("train", *run.flags(), "--dry_run", "--max_steps=3", f"--init_from={same}").returncode == 0
    assert "random weights" in both(first, "--max_steps=5", f"--init_from={weights}")


def test_overwrite_says_what_would_be_moved(finished: TinyRun) -> None:
    seen = mpzero("train", *finished.flags(), "--dry_run", "--max_steps=2", "--overwrite")
    old = finished.checkpoints / "old-1"
    assert seen.returncode == 0, seen.stderr
    assert "from step 0, with random weights from seed 42" in seen.stdout
    assert f"--overwrite moves the other run's checkpoints in {finished.checkpoints} to {old}" in seen.stdout
    assert "contains no checkpoint" not in seen.stdout
    # And so it does.
    assert f"Moved the other run's checkpoints to {old}" in finished.train("--max_steps=2", "--overwrite").stdout


def test_overwrite_does_not_move_the_weights_that_the_run_starts_from(finished: TinyRun) -> None:
    files = sorted(finished.folder.rglob("*"))
    for weights in (finished.checkpoints, finished.latest):
        sentence = both(finished, "--max_steps=2", "--overwrite", f"--init_from={weights}")
        assert f"--init_from {finished.latest}: --overwrite would move these weights" in sentence
        assert "use a different --checkpoint_dir" in sentence
        # Without it nothing advises it.
        assert "--overwrite" not in both(finished, "--max_steps=2", f"--init_from={weights}")
    assert {file for file in finished.folder.rglob("*") if file not in files} <= {finished.checkpoints / ".lock"}
    # What is in old-1 stays there, and a requeued job, which has no --overwrite, resumes.
    finished.train("--max_steps=2", "--seed=7", "--overwrite")
    start = f"--init_from={finished.checkpoints / 'old-1'}"
    finished.train("--max_steps=2", start, "--overwrite")
    assert "Resumed from checkpoint at step 2" in finished.train("--max_steps=3", start).stdout
