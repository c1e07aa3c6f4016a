"""Differences between a checkpoint and the run that resumes from it are refused, or reported in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from golden_run import SAVED_ZERO2, saved_by_deepspeed, train_golden
from test_saving import checkpoint_command
from tiny_run import MODEL, TinyRun
from trainer import train, write_tokens

pytestmark = pytest.mark.e2e

CHANGED = "Changed since the checkpoint: "
FORMATS = ["hdf5", "deepspeed"]


def tiny(folder: Path, **model: object) -> TinyRun:
    """One rank; the tiny model with other values in its config.json."""
    run = TinyRun(folder, ranks=1)
    (folder / "tiny.json").write_text(json.dumps({**MODEL, **model}))
    return run


def changes(output: str) -> list[str]:
    """The changes of the one line that lists them; empty: there is no such line."""
    lines = [line.removeprefix(CHANGED) for line in output.splitlines() if line.startswith(CHANGED)]
    assert len(lines) <= 1
    return lines[0].split(", ") if lines else []


def facts(folder: Path) -> dict[str, list[str]]:
    """The words after each key that `mpzero checkpoint show` prints."""
    shown = checkpoint_command("show", folder)
    assert shown.returncode == 0, shown.stderr
    return {line.split()[0]: line.split()[1:] for line in shown.stdout.splitlines()}


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_all_allowed_changes_are_in_one_line(tmp_path: Path, checkpoint_format: str) -> None:
    run = tiny(tmp_path)
    saves = f"--checkpoint_format={checkpoint_format}"
    run.train("--max_steps=2", saves)
    run.config = {
        "gradient_clipping": 0.5,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "betas": [0.8, 0.999], "eps": 1e-6, "weight_decay": 0}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 3, "total_num_steps": 40}},
    }
    run.seq_length = 8
    result = run.train("--max_steps=4", "--max_position_embeddings=128", saves)
    listed = changes(result.stdout)
    for change in [
        "max_position_embeddings 64 -> 128",
        "lr 0.01 -> 0.02",
        "beta1 0.9 -> 0.8",
        "beta2 0.95 -> 0.999",
        "eps 1e-08 -> 1e-06",
        "weight_decay 0.1 -> 0",
        "scheduler WarmupCosineLR -> WarmupDecayLR",
        "cos_min_ratio 0.1 -> none",
        "warmup_num_steps 2 -> 3",
        "total_num_steps 20 -> 40",
        "max_steps 2 -> 4",
        "gradient_clipping 1 -> 0.5",
        "train_batch_size 4 -> 2",
        "seq_length 16 -> 8",
        "dtype fp32 -> bf16",
        "communication_data_type fp32 -> bf16",
    ]:
        assert listed.count(change) == 1, change
    # Before the first step, and not again.
    assert result.stdout.index(CHANGED) < result.stdout.index("Batch ")
    assert changes(run.train("--max_steps=4", "--max_position_embeddings=128", saves).stdout) == []


def test_the_same_command_is_silent(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    # Everything that the first run's ds_config.json leaves to the program.
    run.config = {
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "gradient_accumulation_steps": "auto",
        "optimizer": {"type": "AdamW", "params": dict.fromkeys(["lr", "betas", "eps", "weight_decay"], "auto")},
        "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": "auto", "total_num_steps": "auto"}},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": "auto"},
    }
    flags = ["--max_steps=6", "--checkpoint_format=deepspeed", "--checkpoint_freq=3"]
    first = run.train(*flags)
    (run.checkpoints / "latest").write_text("tiny-3steps\n")
    again = run.train(*flags)
    assert "Resumed from checkpoint at step 3" in again.stdout
    assert changes(first.stdout) == changes(again.stdout) == []
    assert "the training data differs" not in again.stderr
    # Another factorization of the same global batch, another stage, or another place of the states is reported, and
    # changes no numbers: the finished run is still the one that is asked for.
    run.ranks, run.micro_batch, run.config = 1, 4, {**run.config, "zero_optimization": {"stage": 3}}
    moved = {
        "ranks 2 -> 1",
        "shard_group 2 -> 1",
        "train_micro_batch_size_per_gpu 2 -> 4",
        "zero_stage 2 -> 3",
        "offload_optimizer cpu -> none",
    }
    finished = run.train(*flags)
    assert "step 6 of 6 is saved" in finished.stdout
    assert set(changes(finished.stdout)) == moved
    (run.checkpoints / "latest").write_text("tiny-3steps\n")
    elsewhere = run.train(*flags)
    assert "Resumed from checkpoint at step 3" in elsewhere.stdout
    assert set(changes(elsewhere.stdout)) == moved
    assert changes(run.train(*flags).stdout) == []


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_show_and_diff_print_what_checkpoints_record(tmp_path: Path, checkpoint_format: str) -> None:
    run = TinyRun(tmp_path)
    saves = f"--checkpoint_format={checkpoint_format}"
    run.train("--max_steps=3", saves)
    rows = facts(run.latest)
    assert rows["step"] == ["3"]
    assert rows["tokens_seen"] == [str(3 * 8 * 16)]
    assert rows["hidden_size"] == [str(MODEL["hidden_size"])]
    assert (rows["lr"], rows["seq_length"], rows["train_batch_size"]) == (["0.01"], ["16"], ["8"])
    assert rows["train_data"][:2] == ["3001", "tokens"]
    assert (rows["device"], rows["ranks"], rows["hosts"], rows["shard_group"]) == (["cpu"], ["2"], ["1"], ["2"])
    assert (rows["train_micro_batch_size_per_gpu"], rows["gradient_accumulation_steps"]) == (["2"], ["2"])
    assert (rows["zero_stage"], rows["recompute"]) == (["2"], ["none"])  # --recompute auto, as it was chosen
    # The folder of checkpoints means the newest.
    assert facts(run.checkpoints) == rows
    same = checkpoint_command("diff", run.checkpoints, run.latest)
    assert (same.returncode, same.stdout) == (0, "")

    run.ranks, run.micro_batch = 1, 4
    before = run.latest
    run.train("--max_steps=5", saves)
    result = checkpoint_command("diff", before, run.latest)
    assert result.returncode == 1
    differences = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}
    assert differences["step"] == ["3", "5"]
    assert differences["settings.max_steps"] == ["3", "5"]
    assert differences["layout.ranks"] == ["2", "1"]
    assert differences["layout.train_micro_batch_size_per_gpu"] == ["2", "4"]
    assert not any(key.startswith("model.") or key in ("run", "settings.train_data") for key in differences)


def test_diff_of_what_cannot_be_read_is_an_error_and_no_difference(tmp_path: Path) -> None:
    run = tiny(tmp_path)
    run.train("--max_steps=1")
    (tmp_path / "empty").mkdir()
    states = next(run.latest.glob("*model_states*"))
    for words in ([run.latest], [run.latest, tmp_path / "absent"], [run.latest, tmp_path / "empty"]):
        assert checkpoint_command("diff", *words).returncode == 2, words
    states.write_bytes(states.read_bytes()[:100])
    damaged = checkpoint_command("diff", run.latest, run.latest)
    assert damaged.returncode == 2
    assert damaged.stderr.startswith("mpzero: error: ")
    assert states.name in damaged.stderr
    assert checkpoint_command("show", run.latest).returncode == 2


def test_what_deepspeed_saved_is_compared(tmp_path: Path) -> None:
    saved = saved_by_deepspeed(SAVED_ZERO2)
    resume = f"--resume_from_checkpoint={saved}"
    _, result = train_golden(SAVED_ZERO2, tmp_path / "same", resume, ranks=2, stage=2)
    assert changes(result.stdout) == []
    assert "does not record a model configuration" in result.stderr
    ds_config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-8}}}
    run = tiny(tmp_path / "other")
    golden = saved.parent
    config = {**json.loads((golden / "ds_config.json").read_text()), **ds_config, "gradient_clipping": 1.0}
    (tmp_path / "other.json").write_text(json.dumps({**config, "zero_optimization": {"stage": 2}}))
    run.data = write_tokens(tmp_path / "golden.h5", np.load(golden / "tokens.npy"), 256)
    flags = [flag for flag in run.flags() if "_config=" not in flag]
    flags += [f"--deepspeed_config={tmp_path / 'other.json'}", f"--model_config={golden / 'init' / 'config.json'}"]
    listed = changes(train(*flags, resume, "--max_steps=7").stdout)
    assert listed.count("beta2 0.95 -> 0.999") == 1
    assert listed.count("weight_decay 0.1 -> 0") == 1
    assert listed.count("gradient_clipping 0.5 -> 1") == 1


# Oracle: the values themselves. A number in bf16 is a number in fp32 whose lower 16 bits are 0.
@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_moments_change_between_fp32_and_bf16(tmp_path: Path, checkpoint_format: str) -> None:
    run = tiny(tmp_path)
    saves = f"--checkpoint_format={checkpoint_format}"

    def moments(folder: Path) -> np.ndarray:
        if checkpoint_format == "hdf5":
            with h5py.File(next(folder.glob("*optim_states.h5"))) as file:
                return np.concatenate([unit[name][()] for unit in file.values() for name in ("exp_avg", "exp_avg_sq")])
        states = torch.load(next(folder.glob("*optim_states.pt")), weights_only=False)["optimizer_state_dict"]
        (state,) = states["base_optimizer_state"]["state"].values()
        return torch.cat([state["exp_avg"], state["exp_avg_sq"]]).numpy()

    def in_bf16(values: np.ndarray) -> bool:
        assert values.dtype == np.float32 and values.any()
        return not (values.view(np.uint32) & 0xFFFF).any()

    for step, low, expected in [
        (2, False, []),
        (4, True, ["optimizer_states_dtype fp32 -> bf16"]),
        (6, True, []),
        (8, False, ["optimizer_states_dtype bf16 -> fp32"]),
    ]:
        run.config = {"bf16": {"enabled": True, "bf16_optimizer_states": low}}
        result = run.train(f"--max_steps={step}", saves)
        assert [change for change in changes(result.stdout) if "max_steps" not in change] == expected
        assert in_bf16(moments(run.latest)) == low


def test_the_schedule_of_epochs_ends_with_the_run_after_a_resume(tmp_path: Path) -> None:
    run = tiny(tmp_path)
    cosine = {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 2, "total_num_steps": "auto"}}
    run.config = {"gradient_accumulation_steps": 1, "scheduler": cosine}
    run.train("--num_train_epochs=1", "--checkpoint_freq=0")
    run.config = {"gradient_accumulation_steps": 3, "scheduler": cosine}
    shown = run.train("--num_train_epochs=3", "--checkpoint_freq=0").stdout
    (end,) = re.findall(r"^  schedule end +step (\d+)", shown, re.MULTILINE)
    (steps,) = re.findall(r"^  steps +(\d+)", shown, re.MULTILINE)
    assert end == steps
