"""What identifies a run: its id and the hash of its first weights, in the log and in every checkpoint."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from golden_run import train_golden
from test_resume import assert_same_bits
from test_runs import FREQUENT, SHARD, assert_refused, forget_run, names_in, run_id, the_error
from test_saving import flip_last_bit
from tiny_run import TinyRun
from trainer import BUILD

pytestmark = pytest.mark.e2e


def test_a_run_keeps_its_id(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=2")
    first = run_id(run.latest)
    for steps, other in (
        (3, TinyRun(tmp_path)),
        (4, TinyRun(tmp_path, ranks=1, micro_batch=4, stage=3)),
        (6, TinyRun(tmp_path, ranks=4, micro_batch=1)),
    ):
        other.train(
            f"--max_steps={steps}", "--checkpoint_format=deepspeed" if steps == 3 else "--checkpoint_format=hdf5"
        )
        assert run_id(run.latest) == first
    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4, 5, 6]
    assert {line["run"] for line in run.metrics()} == {first}
    # Also in another folder.
    moved = TinyRun(tmp_path / "moved")
    moved.train("--max_steps=7", f"--resume_from_checkpoint={run.latest}")
    assert run_id(moved.latest) == first
    other = TinyRun(tmp_path / "other")
    other.train("--max_steps=2")
    assert run_id(other.latest) != first


def test_a_checkpoint_without_an_id_resumes_and_stays_of_the_run(tmp_path: Path) -> None:
    """A folder of an older mpzero."""
    run = TinyRun(tmp_path / "run")
    run.train("--max_steps=4", FREQUENT)
    for step in (2, 4):
        forget_run(run.checkpoints / f"tiny-{step}steps")
    metrics = run.folder / "metrics.jsonl"
    lines = run.metrics()
    metrics.write_text("".join(json.dumps({k: v for k, v in line.items() if k != "run"}) + "\n" for line in lines))
    assert "a run without an id" in assert_refused(run, "--resume_from_checkpoint=none")
    assert "Resumed from checkpoint at step 4" in run.train("--max_steps=6").stdout
    new = run_id(run.latest)
    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4, 5, 6]
    assert names_in(run.folder) == [
        "checkpoints", "ds_config.json", "events.jsonl", "metrics.jsonl", "node.jsonl", "summary.json", "tiny.json",
        "train.h5",
    ]  # fmt: skip
    # The run's own first checkpoint is damaged: the checkpoint it resumed from is its own too, and its id is kept.
    flip_last_bit(run.latest / SHARD)
    result = run.train("--max_steps=6")
    assert f"resumes from {run.checkpoints / 'tiny-4steps'}, the newest complete checkpoint." in result.stderr
    assert run_id(run.latest) == new
    straight = TinyRun(tmp_path / "straight")
    straight.train("--max_steps=6")
    assert_same_bits(run, straight)


def test_a_checkpoint_without_an_id_is_known_under_every_name_of_it(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run")
    run.train("--max_steps=4", FREQUENT)
    for step in (2, 4):
        forget_run(run.checkpoints / f"tiny-{step}steps")
    link = tmp_path / "link"
    link.symlink_to(run.latest)
    # A checkpoint on another disk, linked from the folder.
    store = tmp_path / "store"
    (run.checkpoints / "tiny-2steps").rename(store)
    (run.checkpoints / "tiny-2steps").symlink_to(store)
    names = names_in(run.checkpoints)
    for spelling in (f"{run.latest}/../{run.latest.name}/", link):
        # No other checkpoints are in the way, so nothing is refused or moved.
        run.train("--max_steps=4", f"--resume_from_checkpoint={spelling}", "--save_final=false", "--overwrite")
        assert names_in(run.checkpoints) == names
    linked = f"--resume_from_checkpoint={run.checkpoints / 'tiny-2steps'}/"
    sentence = the_error(run.train("--max_steps=3", linked, check=False))
    # It goes back to before step 4, whose checkpoint is in its way.
    assert "contains tiny-4steps of another run" in sentence


def recorded_hash(run: TinyRun) -> str:
    tag = (run.checkpoints / "latest").read_text().strip()
    return json.loads((run.checkpoints / tag / "manifest.json").read_text())["content"]["run"]["init_from_xxh3_64"]


def test_log_and_checkpoint_have_the_hash_of_the_weights(tmp_path: Path) -> None:
    donor = TinyRun(tmp_path / "donor")
    donor.train("--max_steps=1")
    hashes = set()
    # Ranks, stage, checkpoint format, and how the weights are stored.
    for ranks, stage, saved_as, flags in ((1, 0, "hdf5", []), (2, 3, "deepspeed", ["--max_shard_size", "20KB"])):
        weights = tmp_path / f"weights-{ranks}-{stage}"
        words = [BUILD / "bin" / "zero_to_fp32", donor.checkpoints, weights, *flags]
        subprocess.run(words, check=True, capture_output=True)
        run = TinyRun(tmp_path / f"run-{ranks}-{stage}", stage=stage, ranks=ranks)
        made = f"--checkpoint_format={saved_as}"
        result = run.train("--max_steps=1", f"--init_from={weights}", made)
        line = rf"Weights: {re.escape(str(weights))}, (\d+) parameters, xxh3 ([0-9a-f]{{16}})"
        found = re.search(line, result.stdout)
        assert found
        assert f"total parameters: {found[1]}\n" in result.stdout
        assert recorded_hash(run) == found[2]
        hashes.add(found[2])
        # The run keeps the hash without the flag.
        run.train("--max_steps=2", made)
        assert recorded_hash(run) == found[2]
    assert len(hashes) == 1


def test_another_model_seed_or_weights_do_not_resume_silently(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run")
    run.train("--max_steps=2")
    assert "model.embed_tokens.weight" in assert_refused(run, "--hidden_size=64")
    error = assert_refused(run, "--seed=7")
    assert "--seed 42" in error and "--seed 7" in error
    weights = tmp_path / "weights"
    words = [BUILD / "bin" / "zero_to_fp32", run.checkpoints, weights]
    subprocess.run(words, check=True, capture_output=True)
    sentence = assert_refused(run, f"--init_from={weights}")
    assert f"a run that started from random weights, not from the weights of --init_from {weights}" in sentence
    tuned = TinyRun(tmp_path / "tuned")
    tuned.train("--max_steps=2", f"--init_from={weights}")
    # Under any name of the same folder, and without the flag, it resumes.
    relative = os.path.relpath(weights)
    assert "Resumed" in tuned.train("--max_steps=3", f"--init_from={relative}/").stdout
    assert "Resumed" in tuned.train("--max_steps=4").stdout
    # The same weights in another folder are accepted; other weights in their place are not.
    other = tmp_path / "other"
    shutil.copytree(weights, other)
    assert "Resumed" in tuned.train("--max_steps=5", f"--init_from={other}").stdout
    run.train("--max_steps=3")
    subprocess.run([BUILD / "bin" / "zero_to_fp32", run.checkpoints, weights], check=True, capture_output=True)
    sentence = assert_refused(tuned, f"--init_from={weights}")
    assert f"started from the weights of {weights} (xxh3 {recorded_hash(tuned)})" in sentence
    assert f"not from the weights of --init_from {weights} (xxh3 " in sentence
    shutil.rmtree(weights)
    result = tuned.train("--max_steps=6", f"--init_from={weights}")
    assert f"--init_from {weights} no longer exists" in result.stderr
    assert "Resumed" in result.stdout
    weights.mkdir()
    result = tuned.train("--max_steps=7", f"--init_from={weights}")
    assert f"--init_from {weights} no longer contains weights" in result.stderr
    assert "Resumed" in result.stdout
    empty = tmp_path / "empty"
    empty.mkdir()
    sentence = assert_refused(tuned, f"--init_from={empty}")
    assert f"not from the weights of --init_from {empty}; omit --init_from" in sentence
    weights.rmdir()
    shutil.move(other, weights)
    result = tuned.train("--max_steps=2", f"--init_from={weights}", "--overwrite")
    assert "Moved the other run's checkpoints" in result.stdout


def test_deepspeeds_format_has_the_id_too(tmp_path: Path) -> None:
    name = "qwen3-zero2-fp32"
    flags = ("--checkpoint_format=deepspeed", "--max_steps=2")
    train_golden(name, tmp_path, *flags, ranks=2, stage=2)
    checkpoints = tmp_path / "checkpoints"
    (tag,) = [path for path in checkpoints.iterdir() if path.is_dir()]
    assert len(run_id(tag)) == 16
    with pytest.raises(AssertionError, match=f"contains {tag.name} of another run .run {run_id(tag)[:8]}"):
        train_golden(name, tmp_path, *flags, "--resume_from_checkpoint=none", ranks=2, stage=2)
