"""User errors: one sentence that says what, where and what to do; a non-zero exit; nothing lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import h5py
import pytest
from refusals import refuse, the_sentence
from tiny_run import MODEL, TinyRun
from trainer import (
    BUILD,
    ENVIRONMENT,
    children_of,
    num_gpus,
    train,
    wait_until_ended,
)

pytestmark = pytest.mark.e2e


def test_unknown_flag(tmp_path: Path) -> None:
    assert "--learning_rate" in refuse(TinyRun(tmp_path), "--learning_rat=1e-3")


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
    assert f"there are no presets in {tmp_path}/configs/models or {tree}/configs/models," in result.stderr


def test_presets_out_of_reach(tmp_path: Path) -> None:
    """A program that was moved out of its checkout and is started elsewhere."""
    result = train_with(tmp_path / "elsewhere" / "build" / "bin" / "mpzero", TinyRun(tmp_path), tmp_path)
    assert result.returncode == 2, result.stderr
    for folder in ("configs/models", "elsewhere/configs/models"):
        assert str(tmp_path / folder) in result.stderr
    assert "--model_config" in result.stderr


def test_unknown_key(tmp_path: Path) -> None:
    sentence = refuse(TinyRun(tmp_path, config={"gradient_cliping": 1.0}))
    assert "ds_config.json" in sentence
    assert "gradient_cliping" in sentence
    assert "gradient_clipping" in sentence


def test_contradiction(tmp_path: Path) -> None:
    sentence = refuse(TinyRun(tmp_path), "--learning_rate=0.5", "--train_micro_batch_size_per_gpu=7")
    assert "--learning_rate" in sentence
    assert "0.5" in sentence
    assert "--train_micro_batch_size_per_gpu" in sentence


def test_wrong_batch_trio(tmp_path: Path) -> None:
    assert "train_batch_size" in refuse(TinyRun(tmp_path, config={"train_batch_size": 33}))


def test_unsupported_optimizer(tmp_path: Path) -> None:
    sentence = refuse(TinyRun(tmp_path, config={"optimizer": {"type": "Lamb", "params": {"lr": 1e-3}}}))
    assert "Lamb" in sentence
    assert "AdamW" in sentence


def test_unwritable_checkpoint_folder(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.checkpoints.write_text("a file where a folder should be")
    assert str(run.checkpoints) in refuse(run)
    assert run.checkpoints.read_text() == "a file where a folder should be"


def test_truncated_shard(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=1")
    shard = sorted(run.latest.glob("*optim_states.h5"))[-1]
    content = shard.read_bytes()
    shard.write_bytes(content[:-100])
    assert shard.name in refuse(run)
    assert (run.checkpoints / "latest").read_text().strip() == "tiny-1steps"


def test_latest_that_names_no_checkpoint(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=1")
    (run.checkpoints / "latest").write_text("tiny-77steps\n")
    sentence = refuse(run, "--resume_strict")
    assert "latest" in sentence
    assert "tiny-77steps" in sentence
    # Without the flag the run resumes from the newest intact checkpoint, and reports that.
    result = run.train("--max_steps=2")
    [warning] = [line for line in result.stderr.splitlines() if "tiny-77steps" in line]
    assert "tiny-1steps" in warning
    assert "Resumed from checkpoint at step 1" in result.stdout


def test_checkpoint_of_another_model(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=1")
    sentence = refuse(run, "--intermediate_size=56")
    assert "tiny-1steps" in sentence
    assert "56" in sentence
    assert "48" in sentence


def test_missing_resume_folder(tmp_path: Path) -> None:
    assert "elsewhere" in refuse(TinyRun(tmp_path), f"--resume_from_checkpoint={tmp_path / 'elsewhere'}")


def test_other_seed(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=1")
    assert "--seed" in refuse(run, "--seed=7")


def test_more_ranks_than_gpus(tmp_path: Path) -> None:
    sentence = refuse(TinyRun(tmp_path, ranks=9, device="cuda"))
    if num_gpus() == 0:
        assert "--device cuda: CUDA shows no GPU" in sentence
    else:
        assert "GPUs" in sentence
        assert "9 ranks" in sentence


def test_missing_weight(tmp_path: Path) -> None:
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "config.json").write_text(json.dumps(MODEL))
    assert str(tmp_path / "init") in refuse(TinyRun(tmp_path), f"--init_from={tmp_path / 'init'}")


def test_weights_of_another_model(tmp_path: Path) -> None:
    """Weights that have no place in the model are not left out silently."""
    donor = TinyRun(tmp_path / "donor")
    donor.train("--max_steps=1")
    weights = tmp_path / "weights"
    subprocess.run([BUILD / "bin" / "zero_to_fp32", donor.checkpoints, weights], check=True, capture_output=True)
    run = TinyRun(tmp_path / "run")
    sentence = refuse(run, f"--init_from={weights}", "--num_hidden_layers=1", "--rope_theta=500")
    assert f"--init_from {weights}: its config.json is not the model of --model_config" in sentence
    assert "num_hidden_layers is 2 there and 1 here, rope_theta is 10000 there and 500 here; leave out" in sentence
    result = run.train("--max_steps=1", f"--init_from={weights}")
    (weights / "config.json").unlink()
    sentence = refuse(TinyRun(tmp_path / "other"), f"--init_from={weights}", "--num_hidden_layers=1")
    assert "model.layers.1." in sentence
    assert str(weights) in sentence
    assert "Batch 1 Loss" in result.stdout


def test_weights_that_are_not_finite(tmp_path: Path) -> None:
    """Each rank reads its shard; one of them finds the value, and all end with the sentence."""
    donor = TinyRun(tmp_path / "donor")
    donor.train("--max_steps=1")
    weights = tmp_path / "weights"
    subprocess.run([BUILD / "bin" / "zero_to_fp32", donor.checkpoints, weights], check=True, capture_output=True)
    file = weights / "model.safetensors"
    intact = file.read_bytes()
    run = TinyRun(tmp_path / "run", bf16=True)
    for value, what in ((float("nan"), "is NaN at ["), (float("-inf"), "is -inf at ["), (3.4e38, "infinite in bf16")):
        file.write_bytes(intact[:-4] + struct.pack("<f", value))
        sentence = refuse(run, f"--init_from={weights}")
        assert str(file) in sentence
        assert what in sentence


def test_weights_that_were_not_downloaded(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    flags = [flag for flag in run.flags() if not flag.startswith("--model_config")]
    result = train(*flags, "--init_from=Qwen/Qwen3-0.6B", ranks=1, check=False)
    assert result.returncode == 2
    assert "--init_from Qwen/Qwen3-0.6B: there is no such folder; download" in result.stderr


def test_more_memory_than_there_is(tmp_path: Path) -> None:
    sentence = refuse(TinyRun(tmp_path), "--vocab_size=2000000000", "--hidden_size=1000000")
    assert "out of host memory" in sentence


@pytest.mark.parametrize(
    ("key", "value", "flags", "reason"),
    [
        ("train_micro_batch_size_per_gpu", 10**12, [], "--seq_length 16 is more than the 2147483647 tokens"),
        (
            "train_micro_batch_size_per_gpu",
            10**8,
            [],
            "the run does not fit into host memory: a micro-batch of 100000000",
        ),
        ("train_micro_batch_size_per_gpu", 10**18, [], "more than the 2147483647 tokens"),
        ("gradient_accumulation_steps", 10**12, [], "more than the 2396745 micro-batches that a step"),
        ("gradient_accumulation_steps", 10**7, ["--num_hidden_layers=4000"], "of a model of 4000 layers"),
        ("gradient_accumulation_steps", 9 * 10**18, [], "the batch is too large"),
    ],
)
def test_impossible_batch_sizes(tmp_path: Path, key: str, value: int, flags: list[str], reason: str) -> None:
    sentence = refuse(TinyRun(tmp_path, config={key: value}), *flags)
    assert reason in sentence
    assert str(value) in sentence or "too large" in reason
    assert "lower" in sentence or "smaller" in sentence


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--num_hidden_layers=2147483648"], "num_hidden_layers is 2147483648, but must be at most 10000"),
        (["--vocab_size=2147483648", "--hidden_size=2147483648"], "vocab_size 2147483648, hidden_size 2147483648"),
        (["--vocab_size=9000000000000000000"], "vocab_size is 9000000000000000000, but must be"),
    ],
)
def test_impossible_model_sizes(tmp_path: Path, flags: list[str], reason: str) -> None:
    assert reason in refuse(TinyRun(tmp_path), *flags)


def test_impossible_sequence_lengths(tmp_path: Path) -> None:
    flags = [flag for flag in TinyRun(tmp_path).flags() if not flag.startswith("--seq_length")]
    result = train(*flags, f"--seq_length={9 * 10**18}", ranks=2, check=False)
    assert result.returncode == 2, result.stderr
    assert f"--seq_length {9 * 10**18} is more than the 2147483647 tokens" in the_sentence(result.stderr)


def test_validation_of_more_sequences_than_can_be_counted(tmp_path: Path) -> None:
    """The full set is read, as with any number above its size."""
    losses = []
    for place, length in enumerate(("sequences=0", f"sequences={9 * 10**18}", f"batches={9 * 10**18}")):
        run = TinyRun(tmp_path / str(place))
        flags = [f"--validation_data={run.data}", "--validation_freq=1", f"--validation_{length}"]
        losses += re.findall(r"Validation loss: (\S+)", run.train("--max_steps=1", *flags).stdout)
    assert len(losses) == 3
    assert len(set(losses)) == 1
    assert float(losses[0]) > 1


DEEP = "[" * 200_000 + "]" * 200_000


@pytest.mark.parametrize(
    ("name", "text"),
    [("tiny.json", f'{{"model_type": {DEEP}}}'), ("ds_config.json", f'{{"train_batch_size": {DEEP}}}')],
)
def test_json_that_is_nested_too_deep(tmp_path: Path, name: str, text: str) -> None:
    run = TinyRun(tmp_path)
    flags = run.flags()
    (tmp_path / name).write_text(text)
    result = train(*flags, "--max_steps=1", ranks=2, check=False)
    assert result.returncode == 2, result.stderr
    assert f"{tmp_path / name}: it is nested deeper than 64 levels" in the_sentence(result.stderr)


def test_a_manifest_that_is_nested_too_deep(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=1")
    (run.latest / "manifest.json").write_text(f'{{"content": {DEEP}, "content_xxh3_64": "0"}}')
    environment = {**os.environ, **ENVIRONMENT}
    for word in ("ls", "verify"):
        command = [BUILD / "bin" / "mpzero", "checkpoint", word, run.checkpoints]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == (0 if word == "ls" else 1), result.stderr
        assert "nested deeper than 64 levels" in result.stdout + result.stderr
    assert "nested deeper than 64 levels" in refuse(run, "--resume_strict")


def test_model_that_is_not_understood(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    flags = run.flags()
    (tmp_path / "tiny.json").write_text(json.dumps({**MODEL, "attention_sinks": 4}))
    result = train(*flags, "--max_steps=1", ranks=2, check=False)
    assert result.returncode == 2
    assert f"{tmp_path / 'tiny.json'}: key attention_sinks is not known" in the_sentence(result.stderr)


def test_loss_that_is_not_finite(tmp_path: Path) -> None:
    """An extreme learning rate: the run stops, and earlier checkpoints remain."""
    scheduler = {"type": "WarmupLR", "params": {"warmup_max_lr": 1e38, "warmup_min_lr": 1e38}}
    run = TinyRun(tmp_path, config={"gradient_clipping": 0.0, "scheduler": scheduler})
    result = run.train("--max_steps=8", "--checkpoint_freq=1", check=False)
    assert result.returncode != 0
    assert "step" in the_sentence(result.stderr)
    steps = [line["step"] for line in run.metrics()]
    assert run.latest.name == f"tiny-{steps[-1]}steps"


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


def test_one_rank_dies(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    with run.running("--max_steps=1000000", "--checkpoint_freq=3", "--keep_last=1") as process:
        ranks = children_of(process)
        assert len(ranks) == 2
        os.kill(int(ranks[1]), signal.SIGKILL)
        assert process.wait(timeout=60) != 0
        wait_until_ended(ranks)
    step = int(run.latest.name.removeprefix("tiny-").removesuffix("steps"))
    result = run.train(f"--max_steps={step + 1}", check=False)
    assert result.returncode == 0, result.stderr
    with h5py.File(run.latest / "mp_rank_00_model_states.h5"):
        pass
