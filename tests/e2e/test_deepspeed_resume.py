"""Checkpoints that stock DeepSpeed 0.19.8 wrote, resumed by mpzero: the rest of the golden trace."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from golden_run import (
    BF16_TOLERANCE,
    FP32_TOLERANCE,
    SAVED_BF16,
    SAVED_ZERO2,
    SAVED_ZERO3,
    WITHOUT_ZERO,
    WITHOUT_ZERO_BF16,
    assert_follows,
    saved_by_deepspeed,
    train_golden,
    train_with_deepspeed,
)
from trainer import BUILD

pytestmark = pytest.mark.e2e

SAVED_AFTER = 6


def resume(
    name: str,
    saved: Path,
    folder: Path,
    *,
    ranks: int,
    stage: int,
    tolerance: float,
    norm_tolerance: float | None = None,
) -> str:
    """Resumes from the checkpoint in `saved`; returns the run's stderr."""
    steps, result = train_golden(name, folder, f"--resume_from_checkpoint={saved}", ranks=ranks, stage=stage)
    assert f"Resumed from checkpoint at step {SAVED_AFTER}" in result.stdout
    assert "schedule differs from" not in result.stderr
    assert_follows(name, steps, tolerance, first=SAVED_AFTER + 1, norm_tolerance=norm_tolerance)
    return result.stderr


@pytest.mark.parametrize(("ranks", "stage"), [(1, 0), (2, 1), (2, 2), (4, 2), (1, 3), (4, 3)])
def test_recorded_zero2(tmp_path: Path, ranks: int, stage: int) -> None:
    resume(SAVED_ZERO2, saved_by_deepspeed(SAVED_ZERO2), tmp_path, ranks=ranks, stage=stage, tolerance=FP32_TOLERANCE)


@pytest.mark.parametrize(("ranks", "stage"), [(1, 2), (2, 3), (3, 3), (3, 1)])
def test_recorded_zero3(tmp_path: Path, ranks: int, stage: int) -> None:
    resume(SAVED_ZERO3, saved_by_deepspeed(SAVED_ZERO3), tmp_path, ranks=ranks, stage=stage, tolerance=FP32_TOLERANCE)


@pytest.mark.parametrize(("ranks", "stage"), [(2, 2), (4, 3)])
def test_recorded_bf16(tmp_path: Path, ranks: int, stage: int) -> None:
    # Gradients round to 2^-8. The loss averages over all tokens; the norm of a model with 4,000 weights averages over
    # few values.
    tolerances = {"tolerance": 1e-3, "norm_tolerance": 3e-2}
    resume(SAVED_BF16, saved_by_deepspeed(SAVED_BF16), tmp_path, ranks=ranks, stage=stage, **tolerances)


def test_recorded_without_zero(tmp_path: Path) -> None:
    """One file holds all; its optimizer numbers the parameters in groups with and without weight decay."""
    resume(
        WITHOUT_ZERO, saved_by_deepspeed(WITHOUT_ZERO), tmp_path / "fp32", ranks=2, stage=2, tolerance=FP32_TOLERANCE
    )
    for name in WITHOUT_ZERO_BF16:
        tolerances = {"tolerance": 3e-3, "norm_tolerance": 3e-2}
        said = resume(name, saved_by_deepspeed(name), tmp_path / name, ranks=1, stage=0, **tolerances)
        assert "7 AdamW updates" in said  # updates, where 6 were made


def save_with_deepspeed(folder: Path, *runs: tuple[str, int, list[str]], ranks: int) -> list[Path]:
    """The folder of checkpoints of each run that stock DeepSpeed begins, with its stage and flags."""
    saved = [folder / f"saved{number}" for number in range(len(runs))]
    upto = ["--save_after", SAVED_AFTER, "--steps", SAVED_AFTER]
    words = [
        (name, stage, ["--save", path, *upto, *flags]) for path, (name, stage, flags) in zip(saved, runs, strict=True)
    ]
    train_with_deepspeed(folder, *words, ranks=ranks)
    return saved


def test_stage_1_in_fp32_and_in_bf16_with_gradients_in_fp32(tmp_path: Path) -> None:
    """The latter by DeepSpeed's BF16_Optimizer, whose files do not record their stage."""
    fp32, bf16 = "qwen3-zero2-fp32", "qwen3-zero2-bf16"
    runs = (fp32, 1, []), (bf16, 1, ["--bf16", "--no-offload", "--fp32_gradients"])
    saved = save_with_deepspeed(tmp_path, *runs, ranks=2)
    resume(fp32, saved[0], tmp_path / "fp32", ranks=2, stage=3, tolerance=FP32_TOLERANCE)
    resume(bf16, saved[1], tmp_path / "bf16", ranks=2, stage=3, tolerance=BF16_TOLERANCE, norm_tolerance=3e-2)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "stage", "ranks", "flags"),
    [
        ("qwen3-zero2-fp32", 2, 4, ["--no-offload"]),
        ("llama-zero3-fp32", 3, 3, ["--cpu_adam", "--zero", '{"sub_group_size": 20000}']),
        ("llama-zero3-fp32", 2, 3, ["--zero", '{"elastic_checkpoint": true, "round_robin_gradients": true}']),
        ("llama-zero3-fp32", 2, 3, ["--zero", '{"parameter_alignment": true}']),
    ],
)
def test_other_stages_ranks_and_options(tmp_path: Path, name: str, stage: int, ranks: int, flags: list[str]) -> None:
    (saved,) = save_with_deepspeed(tmp_path, (name, stage, flags), ranks=ranks)
    resume(name, saved, tmp_path / "resumed", ranks=2, stage=3, tolerance=FP32_TOLERANCE)


@pytest.mark.nightly
def test_groups_of_weight_decay_are_not_a_silent_change(tmp_path: Path) -> None:
    """The Hugging Face Trainer's two parameter groups: training continues, and a line says what differs."""
    name = "llama-zero3-fp32"
    (saved,) = save_with_deepspeed(tmp_path, (name, 2, ["--weight_decay_groups"]), ranks=2)
    said = resume(name, saved, tmp_path / "run", ranks=2, stage=2, tolerance=FP32_TOLERANCE)
    assert "weight decay" not in said  # both groups have the configuration's


def test_a_damaged_shard_stops_the_run(tmp_path: Path) -> None:
    """A flipped bit in any rank's values is found, by any rank, before the first step."""
    copy = tmp_path / "copy"
    shutil.copytree(saved_by_deepspeed(SAVED_ZERO2), copy)
    shard = copy / "global_step6" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    shard.write_bytes(damaged)
    with pytest.raises(AssertionError, match=r"zero_pp_rank_1_mp_rank_00_optim_states.pt is damaged: the checksum"):
        train_golden(SAVED_ZERO2, tmp_path / "run", f"--resume_from_checkpoint={copy}", ranks=2, stage=2)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def rewrite(saved: Path, folder: Path, change) -> Path:
    """A copy of the checkpoint without ZeRO in `saved` whose content `change` has edited."""
    torch = pytest.importorskip("torch")
    shutil.copytree(saved, folder)
    file = folder / "global_step6" / "mp_rank_00_model_states.pt"
    states = torch.load(file, weights_only=False)
    change(states)
    torch.save(states, file)
    return folder


def export(saved: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = [BUILD / "bin" / "zero_to_fp32", saved, out, "--format", "safetensors"]
    return subprocess.run(words, capture_output=True, text=True)


def test_names_of_a_wrapped_model(tmp_path: Path) -> None:
    """A prefix that all names have is left out; one that only some have is shown."""
    prefix = "module._orig_mod."

    def wrap(states: dict, names: list[str]) -> None:
        module = states["module"]
        states["module"] = {(prefix if name in names else "") + name: module[name] for name in module}

    saved = saved_by_deepspeed(WITHOUT_ZERO)
    wrapped = rewrite(saved, tmp_path / "all", lambda states: wrap(states, list(states["module"])))
    said = resume(WITHOUT_ZERO, wrapped, tmp_path / "run", ranks=1, stage=0, tolerance=FP32_TOLERANCE)
    assert prefix in said
    in_part = rewrite(saved, tmp_path / "one", lambda states: wrap(states, ["model.norm.weight"]))
    with pytest.raises(AssertionError, match=rf"has no model.norm.weight.*{prefix}model.norm.weight"):
        train_golden(WITHOUT_ZERO, tmp_path / "other", f"--resume_from_checkpoint={in_part}", ranks=1, stage=0)


def test_an_optimizer_of_other_parameters_is_refused(tmp_path: Path) -> None:
    """As where parameters are frozen: the optimizer's tensors have numbers, which then count others."""

    def freeze(states: dict) -> None:
        state = states["optimizer"]["state"]
        states["optimizer"]["state"] = {number - 1: state[number] for number in state if number > 0}

    saved = rewrite(saved_by_deepspeed(WITHOUT_ZERO), tmp_path / "saved", freeze)
    with pytest.raises(AssertionError, match=r"mp_rank_00_model_states.pt: the optimizer's .* tensors"):
        train_golden(WITHOUT_ZERO, tmp_path / "run", f"--resume_from_checkpoint={saved}", ranks=1, stage=0)


@pytest.mark.parametrize("sizes", [[24], [15, 9], [15, 0, 9], [14, 10], [12, 3, 9]])
def test_groups_of_the_optimizer_without_masters(tmp_path: Path, sizes: list[int]) -> None:
    """The parameters of one group are in the model's order, those of two are matrices and vectors."""

    def regroup(states: dict) -> None:
        first = states["optimizer"]["param_groups"][0]
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        groups = [{**first, "params": list(range(end - size, end))} for size, end in zip(sizes, ends, strict=True)]
        states["optimizer"]["param_groups"] = groups

    saved = rewrite(saved_by_deepspeed(WITHOUT_ZERO), tmp_path / "saved", regroup)
    result = export(saved, tmp_path / "out")
    assert result.returncode == (0 if sizes in ([15, 9], [15, 0, 9]) else 2)
    assert ("mp_rank_00_model_states.pt: the optimizer's 24 tensors" in result.stderr) == (result.returncode == 2)


def test_masters_of_fp16(tmp_path: Path) -> None:
    """They are the optimizer's if they round to the weights in fp16."""
    weights = {}

    def to_fp16(states: dict) -> None:
        module, masters = states["module"], [m.detach() for group in states["optimizer"]["fp32_groups"] for m in group]
        names = [name for name in module if name != "lm_head.weight"]
        names = [n for n in names if module[n].dim() > 1] + [n for n in names if module[n].dim() == 1]
        weights.update(zip(names, masters, strict=True))
        masters[0][0, :5] = masters[0].new_tensor([65519.9, 65520, 2.0**-25, 3 * 2.0**-25, -1.00048828125])
        for name, master in weights.items():
            module[name] = master.half()
        module["lm_head.weight"] = module["model.embed_tokens.weight"]

    saved = rewrite(saved_by_deepspeed(WITHOUT_ZERO_BF16[0]), tmp_path / "saved", to_fp16)
    result = export(saved, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    exported = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    for name, master in weights.items():
        assert np.array_equal(exported[name], master.numpy()), name
