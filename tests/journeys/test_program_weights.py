"""A user starts a new run from the weights of a checkpoint: --init_from CHECKPOINT_DIR."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from refusals import the_sentence
from tiny_run import TinyRun
from trainer import ENVIRONMENT, command

from .program import mpzero

pytestmark = pytest.mark.e2e


def weights_line(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("Weights: "))


def losses(run: TinyRun) -> list[float]:
    return [line["loss"] for line in run.metrics()]


def start_from(weights: Path, folder: Path, *flags: object) -> tuple[TinyRun, str]:
    """A run of the model that the weights bring, with a learning rate from the first step on."""
    run = TinyRun(folder, config={"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2}}})
    words = [flag for flag in run.flags() if not flag.startswith("--model_config")]
    run.flags = lambda: words  # type: ignore[method-assign]
    return run, run.train("--max_steps=3", f"--init_from={weights}", *flags).stdout


@pytest.mark.parametrize("checkpoint_format", ["hdf5", "deepspeed"])
def test_it_is_the_same_as_from_converted_weights(tmp_path: Path, checkpoint_format: str) -> None:
    first = TinyRun(tmp_path / "first", stage=2)
    first.train("--max_steps=4", f"--checkpoint_format={checkpoint_format}")
    exported = tmp_path / "exported"
    assert mpzero(first.checkpoints, exported, program="zero_to_fp32").returncode == 0
    by_weights, said = start_from(exported, tmp_path / "by_weights")
    for name, named in (("by_latest", first.checkpoints), ("by_tag", first.latest)):
        run, seen = start_from(named, tmp_path / name)
        # Hash and losses: the same bits.
        assert weights_line(seen).split("xxh3")[1] == weights_line(said).split("xxh3")[1]
        assert f"Weights: {first.latest}, " in seen
        assert losses(run) == losses(by_weights) and len(losses(run)) == 3
        record = json.loads((run.latest / "manifest.json").read_text())["content"]["run"]
        assert record["init_from"] == str(first.latest.resolve())
        # Checkpoints are named after the model.
        assert run.latest.name == "tiny-3steps"


def test_it_resumes_although_latest_has_changed(tmp_path: Path) -> None:
    first = TinyRun(tmp_path / "first")
    first.train("--max_steps=4")
    run, _ = start_from(first.checkpoints, tmp_path / "tuned")
    first.train("--max_steps=6")
    resumed = run.train("--max_steps=4", f"--init_from={first.checkpoints}")
    assert "Resumed from checkpoint at step 3" in resumed.stdout
    # Another checkpoint is other weights.
    other = mpzero("train", *run.flags(), "--dry_run", "--max_steps=5", f"--init_from={first.latest}")
    assert other.returncode == 2
    assert "omit --init_from, and pass the run's model with --model_config" in the_sentence(other.stderr)


def test_it_resumes_after_the_weights_are_gone(tmp_path: Path) -> None:
    first = TinyRun(tmp_path / "first", ranks=1)
    first.train("--max_steps=1")
    weights = first.checkpoints
    run, _ = start_from(weights, tmp_path / "tuned")
    gone = first.latest
    first.checkpoints.rename(tmp_path / "moved")
    model = f"--model_config={run.folder / 'tiny.json'}"
    for step, flags in ((4, []), (5, [model])):
        asked = mpzero("train", *run.flags(), *flags, "--dry_run", f"--max_steps={step}", f"--init_from={weights}")
        assert asked.returncode == 0 and f"after step {step - 1}, from " in asked.stdout, asked.stderr
        resumed = run.train(f"--max_steps={step}", f"--init_from={weights}", *flags)
        assert f"Resumed from checkpoint at step {step - 1}" in resumed.stdout
        for said in (asked.stderr, resumed.stdout + resumed.stderr):
            assert f"--init_from {gone} no longer exists, so its weights were not compared" in said
    # Other paths are other weights, and a new run needs what it starts from.
    other = mpzero("train", *run.flags(), "--dry_run", "--max_steps=6", f"--init_from={tmp_path / 'nowhere'}")
    assert other.returncode == 2 and f"{tmp_path / 'nowhere'}" in the_sentence(other.stderr)
    new = mpzero("train", *run.flags(), "--dry_run", "--overwrite", f"--init_from={weights}")
    assert new.returncode == 2 and f"--init_from {weights}" in the_sentence(new.stderr)


def test_a_cached_name_of_the_hub_is_its_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, hub = "org-of-the-test/Tiny-0.1", tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    first = TinyRun(tmp_path / "first", ranks=1)
    first.train("--max_steps=1")
    repository = hub / "models--org-of-the-test--Tiny-0.1"
    snapshot = repository / "snapshots/0123456789abcdef"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text(snapshot.name)
    snapshot.mkdir(parents=True)
    # A part of it, such as the tokenizer alone, is not the model.
    (snapshot / "tokenizer.json").write_text("{}")
    run = TinyRun(tmp_path / "tuned", ranks=1)
    words = [flag for flag in run.flags() if not flag.startswith("--model_config")]
    for refused in (mpzero("train", *words, f"--init_from={name}"), mpzero("generate", name, "--prompt_tokens=1")):
        assert refused.returncode == 2 and f"hf download {name}`" in the_sentence(refused.stderr)
    (snapshot / "tokenizer.json").unlink()
    assert mpzero(first.checkpoints, snapshot, program="zero_to_fp32").returncode == 0

    generated = mpzero("generate", name, "--prompt_tokens=1,2,3", "--max_tokens=2", "--temperature=0")
    assert len(generated.stdout.split()) == 2, generated.stderr
    run, said = start_from(Path(name), tmp_path / "tuned")
    assert f"Weights: {snapshot}, " in said
    record = json.loads((run.latest / "manifest.json").read_text())["content"]["run"]
    assert record["init_from"] == str(snapshot.resolve())
    assert run.latest.name == "Tiny-0.1-3steps"
    # Without the cache the name still means the run's weights.
    hub.rename(tmp_path / "moved")
    resumed = run.train("--max_steps=4", f"--init_from={name}")
    assert "Resumed from checkpoint at step 3" in resumed.stdout


def test_all_ranks_start_from_the_checkpoint_that_rank_0_found(tmp_path: Path) -> None:
    first = TinyRun(tmp_path / "first", ranks=1)
    first.train("--max_steps=2", "--checkpoint_freq=1")
    # Rank 1 sees another `latest`, as if the first run had saved in between.
    for rank in range(2):
        seen = tmp_path / f"rank{rank}" / "source"
        seen.mkdir(parents=True)
        for step in (1, 2):
            (seen / f"tiny-{step}steps").symlink_to(first.checkpoints / f"tiny-{step}steps")
        (seen / "latest").write_text(f"tiny-{rank + 1}steps\n")
    run = TinyRun(tmp_path / "tuned")
    each = [*command(*run.flags(), "--max_steps=1", "--init_from=source", ranks=1)]
    start = each.index("-n")
    app = each[start:]
    line = [*each[:start], *app[:2], "-wdir", tmp_path / "rank0", *app[2:], ":"]
    line += [*app[:2], "-wdir", tmp_path / "rank1", *app[2:]]
    result = subprocess.run(
        list(map(str, line)),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **ENVIRONMENT},
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    assert "Weights: source/tiny-1steps, " in result.stdout


def test_the_dry_run_names_the_checkpoint_and_refuses_another_model(tmp_path: Path) -> None:
    first = TinyRun(tmp_path / "first")
    first.train("--max_steps=1")
    run = TinyRun(tmp_path / "tuned")
    start = f"--init_from={first.checkpoints}"
    seen = mpzero("train", *run.flags(), "--dry_run", start)
    assert seen.returncode == 0, seen.stderr
    assert f"from step 0, with the weights of {first.latest}" in seen.stdout
    refused = mpzero("train", *run.flags(), "--dry_run", start, "--rope_theta=500")
    assert refused.returncode == 2
    assert "rope_theta 10000 vs. 500" in the_sentence(refused.stderr)
