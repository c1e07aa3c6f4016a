"""User errors: one sentence that says what, where and what to do; a non-zero exit; nothing lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from refusals import refuse, the_sentence
from tiny_run import MODEL, TinyRun
from trainer import BUILD, ENVIRONMENT

pytestmark = pytest.mark.e2e


def train_with(program: Path, run: TinyRun, cwd: Path) -> subprocess.CompletedProcess:
    """A copy of mpzero in another place, with a preset's name."""
    program.parent.mkdir(parents=True)
    shutil.copy(BUILD / "bin" / "mpzero", program)
    words = [program, "train", "--model_type=qwen3_tiny", f"--train_data={run.data}", "--device=cpu"]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("place", ["build/bin", "build/asan/bin", "bin"])
def test_presets_are_those_of_the_programs_tree(tmp_path: Path, place: str) -> None:
    """The checkout, or the installed tree; not the build folder, and no folder above the tree."""
    tree = tmp_path / "above" / "tree"
    for folder in (tree / "build", tree.parent):
        (folder / "configs/models").mkdir(parents=True)
        (folder / "configs/models/stray.json").write_text("{}")
    (tree / "pyproject.toml").touch()
    result = train_with(tree / place / "mpzero", TinyRun(tmp_path), tmp_path)
    assert result.returncode == 2, result.stderr
    assert f"no presets in {tmp_path}/configs/models or {tree}/configs/models;" in result.stderr


def test_unwritable_checkpoint_folder(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.checkpoints.write_text("a file where a folder should be")
    assert str(run.checkpoints) in refuse(run)
    assert run.checkpoints.read_text() == "a file where a folder should be"


def test_missing_resume_folder(tmp_path: Path) -> None:
    assert "elsewhere" in refuse(TinyRun(tmp_path, ranks=1), f"--resume_from_checkpoint={tmp_path / 'elsewhere'}")


def test_missing_weight(tmp_path: Path) -> None:
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "config.json").write_text(json.dumps(MODEL))
    assert str(tmp_path / "init") in refuse(TinyRun(tmp_path, ranks=1), f"--init_from={tmp_path / 'init'}")


def test_weights_of_another_model(tmp_path: Path) -> None:
    """Weights that have no place in the model are not left out silently."""
    donor = TinyRun(tmp_path / "donor", ranks=1)
    donor.train("--max_steps=1")
    weights = tmp_path / "weights"
    subprocess.run([BUILD / "bin" / "zero_to_fp32", donor.checkpoints, weights], check=True, capture_output=True)
    run = TinyRun(tmp_path / "run")
    sentence = refuse(run, f"--init_from={weights}", "--num_hidden_layers=1", "--rope_theta=500")
    assert f"--init_from {weights}: its config.json differs from --model_config" in sentence
    assert "num_hidden_layers 2 vs. 1, rope_theta 10000 vs. 500" in sentence
    result = run.train("--max_steps=1", f"--init_from={weights}")
    (weights / "config.json").unlink()
    sentence = refuse(TinyRun(tmp_path / "other"), f"--init_from={weights}", "--num_hidden_layers=1")
    assert "model.layers.1." in sentence
    assert str(weights) in sentence
    assert "Batch 1 Loss" in result.stdout


def test_more_memory_than_there_is(tmp_path: Path) -> None:
    # A machine with less memory than the activations need refuses them first.
    assert "host memory" in refuse(TinyRun(tmp_path, ranks=1), "--vocab_size=2000000000", "--hidden_size=1000000")


@pytest.mark.parametrize(
    ("key", "value", "flags", "reason"),
    [
        ("train_micro_batch_size_per_gpu", 2**22 + 1, [], "--seq_length 16 exceeds the maximum of 67108864 tokens"),
        ("train_micro_batch_size_per_gpu", 10**5, ["--intermediate_size=1000000"], "a micro-batch of 100000 "),
        ("--seq_length", 9 * 10**18, [], "exceeds the maximum of 67108864 tokens"),
        ("gradient_accumulation_steps", 10**12, [], "the maximum of 2396745 micro-batches per step"),
        ("gradient_accumulation_steps", 10**7, ["--num_hidden_layers=4000"], "for 4000 layers"),
    ],
)
def test_impossible_batch_sizes_and_sequence_lengths(
    tmp_path: Path, key: str, value: int, flags: list[str], reason: str
) -> None:
    run = TinyRun(tmp_path, ranks=1)
    if key == "--seq_length":
        run.seq_length = value
    else:
        run.config = {key: value}
    sentence = refuse(run, *flags)
    assert reason in sentence
    assert str(value) in sentence
    assert any(word in sentence for word in ("lower", "smaller", "reduce"))


def test_validation_of_more_sequences_than_can_be_counted(tmp_path: Path) -> None:
    """The full set is read, as with any number above its size."""
    losses = []
    for place, length in enumerate(("sequences=0", f"sequences={9 * 10**18}")):
        run = TinyRun(tmp_path / str(place), ranks=1)
        flags = [f"--validation_data={run.data}", "--validation_freq=1", f"--validation_{length}"]
        losses += re.findall(r"Validation loss: (\S+)", run.train("--max_steps=1", *flags).stdout)
    assert len(losses) == 2
    assert len(set(losses)) == 1
    assert float(losses[0]) > 1


def test_folder_in_use(tmp_path: Path) -> None:
    """A second run in the same folder would damage the first one's checkpoints and metrics."""
    run = TinyRun(tmp_path)
    with run.running("--max_steps=1000000", "--checkpoint_freq=3", "--keep_last=1") as first:
        sentence = refuse(run)
        assert "another run (process" in sentence
        assert str(run.checkpoints) in sentence
        assert "--checkpoint_dir" in sentence
        assert first.poll() is None
    steps = [line["step"] for line in run.metrics()]
    assert steps == list(range(1, len(steps) + 1))


def test_ranks_with_different_settings_are_refused(tmp_path: Path) -> None:
    """Hosts with their own ds_config.json, config.json and flags; paths may differ."""
    run, other = TinyRun(tmp_path / "run"), TinyRun(tmp_path / "other")

    def train_both(*flags: str, **config: object) -> subprocess.CompletedProcess:
        other.config = config
        own = ("--deepspeed_config", "--model_config", "--train_data")
        flags = (*flags, *(flag for flag in other.flags() if flag.startswith(own)))
        common = ["-n", "1", BUILD / "bin" / "mpzero", "train", "--max_steps=2"]
        first = [*common, *run.flags()]
        second = [*common, *(flag for flag in run.flags() if not flag.startswith(own)), *flags]
        words = ["mpirun", "--oversubscribe", "--bind-to", "none", *first, ":", *second]
        environment = {**os.environ, **ENVIRONMENT}
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=False)

    result = train_both(optimizer={"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95], "weight_decay": 0.1}})
    assert result.returncode == 2, result.stdout + result.stderr
    sentence = the_sentence(result.stderr)
    for fact in ("rank 1", "rank 0", "optimizer.params.lr", "0.001", "0.01"):
        assert fact in sentence, sentence
    assert not run.checkpoints.exists()
    result = train_both("--metrics_port=0")
    assert result.returncode == 0, result.stderr
