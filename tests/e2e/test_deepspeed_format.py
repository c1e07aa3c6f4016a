"""--checkpoint_format deepspeed: stock DeepSpeed 0.19.8 resumes our files and its own script converts them."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from pathlib import Path

import pytest
from golden_run import BF16_TOLERANCE, FP32_TOLERANCE, assert_follows, train_golden, train_with_deepspeed
from trainer import BUILD

pytestmark = pytest.mark.e2e

SAVED_AFTER = 6
FORMAT = "--checkpoint_format=deepspeed"


def save(name: str, folder: Path, *flags: object, ranks: int, stage: int, zero: dict | None = None) -> Path:
    """The folder of checkpoints of a golden run that ended after SAVED_AFTER steps."""
    train_golden(name, folder, FORMAT, f"--max_steps={SAVED_AFTER}", *flags, ranks=ranks, stage=stage, zero=zero)
    return folder / "checkpoints"


# Golden run, stage, ranks, our zero_optimization, flags of DeepSpeed's run.
Case = tuple[str, int, int, dict | None, list[str]]
CASES: dict[str, Case] = {
    "fp32, stage 1": ("qwen3-zero2-fp32", 1, 2, None, []),
    "fp32, stage 3": ("llama-zero3-fp32", 3, 2, None, []),
    "bf16, stage 2": ("qwen3-zero2-bf16", 2, 2, None, ["--bf16"]),
}
SUB_GROUPS = {"sub_group_size": 20000}
NIGHTLY: dict[str, Case] = {
    "DeepSpeed's AdamW": ("qwen3-zero2-fp32", 2, 2, None, ["--cpu_adam"]),
    "1 rank": ("qwen3-zero2-fp32", 2, 1, None, ["--no-offload"]),
    "3 ranks": ("llama-zero3-fp32", 2, 3, None, []),
    "sub groups": ("llama-zero3-fp32", 3, 3, SUB_GROUPS, ["--cpu_adam", "--zero", json.dumps(SUB_GROUPS)]),
    "states on the device": ("qwen3-zero2-fp32", 3, 2, None, ["--no-offload"]),
    "bf16, stage 3": ("qwen3-zero2-bf16", 3, 2, None, ["--bf16"]),
}


def resume_with_deepspeed(folder: Path, cases: list[Case]) -> list[list[dict]]:
    """Our run and DeepSpeed's rest of it, for each case; on the same number of ranks."""
    runs = []
    for number, (name, stage, ranks, zero, flags) in enumerate(cases):
        checkpoints = save(name, folder / str(number), ranks=ranks, stage=stage, zero=zero)
        runs.append((name, stage, ["--load", checkpoints, *flags]))
    return train_with_deepspeed(folder, *runs, ranks=cases[0][2])


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    """DeepSpeed's steps in each of CASES. It takes half a minute to start."""
    return dict(zip(CASES, resume_with_deepspeed(tmp_path_factory.mktemp("resumed"), [*CASES.values()]), strict=True))


def assert_is_rest(case: Case, steps: list[dict]) -> None:
    tolerance = BF16_TOLERANCE if "bf16" in case[0] else FP32_TOLERANCE
    assert_follows(case[0], steps, tolerance, first=SAVED_AFTER + 1)


@pytest.mark.parametrize("case", CASES)
def test_deepspeed_resumes(resumed: dict[str, list[dict]], case: str) -> None:
    assert_is_rest(CASES[case], resumed[case])


@pytest.mark.nightly
@pytest.mark.parametrize("case", NIGHTLY)
def test_deepspeed_resumes_with_other_options(tmp_path: Path, case: str) -> None:
    assert_is_rest(NIGHTLY[case], *resume_with_deepspeed(tmp_path, [NIGHTLY[case]]))


@pytest.mark.parametrize(
    ("name", "stage", "ranks", "zero"),
    [
        ("qwen3-zero2-fp32", 2, 4, None),
        ("qwen3-zero2-bf16", 1, 2, None),
        ("llama-zero3-fp32", 3, 3, {"sub_group_size": 20000}),
        ("qwen3-zero2-bf16", 3, 4, None),
        ("qwen3-zero2-fp32", 0, 2, None),
    ],
)
def test_zero_to_fp32_of_deepspeed(tmp_path: Path, name: str, stage: int, ranks: int, zero: dict | None) -> None:
    """Its weights are ours, bit for bit: those that our converter finds in our own HDF5 format."""
    pytest.importorskip("deepspeed")
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.torch").load_file
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    checkpoints = save(name, tmp_path / "ours", ranks=ranks, stage=stage, zero=zero)
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = get_fp32_state_dict_from_zero_checkpoint(str(checkpoints))
    hdf5 = tmp_path / "hdf5"
    # The same run once more: fp32 on the CPU repeats bit for bit.
    train_golden(name, hdf5, f"--max_steps={SAVED_AFTER}", ranks=ranks, stage=stage, zero=zero)
    for source, out in ((hdf5 / "checkpoints", tmp_path / "a"), (checkpoints, tmp_path / "b")):
        subprocess.run([BUILD / "bin" / "zero_to_fp32", source, out], check=True, capture_output=True)
    ours, converted = (load_file(tmp_path / out / "model.safetensors") for out in "ab")
    tied = json.loads((tmp_path / "b" / "config.json").read_text())["tie_word_embeddings"]
    assert set(theirs) == set(ours) | ({"lm_head.weight"} if tied else set())
    for key, weight in ours.items():
        assert torch.equal(theirs[key], weight), key
        assert torch.equal(converted[key], weight), key
    if tied:
        assert torch.equal(theirs["lm_head.weight"], theirs["model.embed_tokens.weight"])
    if stage == 1:  # torch.load's restricted unpickler loads the model's file, whose tied head is no copy
        (file,) = checkpoints.glob("*/mp_rank_00_model_states.pt")
        model = torch.load(file, weights_only=True, mmap=True)
        assert model["global_steps"] == SAVED_AFTER
        assert model["module"]["lm_head.weight"].data_ptr() == model["module"]["model.embed_tokens.weight"].data_ptr()
        assert all(weight.dtype == torch.bfloat16 for weight in model["module"].values())


@pytest.mark.parametrize(("stage", "ranks"), [(3, 2), (1, 4)])
def test_we_resume_our_own(tmp_path: Path, stage: int, ranks: int) -> None:
    """The same ranks and stage: the same bits as a run that never stopped; the format loses nothing."""
    name = "qwen3-zero2-fp32"
    straight, _ = train_golden(name, tmp_path / "straight", ranks=ranks, stage=stage)
    save(name, tmp_path / "stopped", ranks=ranks, stage=stage)
    resumed, result = train_golden(name, tmp_path / "stopped", FORMAT, ranks=ranks, stage=stage)
    assert f"Resumed from checkpoint at step {SAVED_AFTER}" in result.stdout
    assert "differs from" not in result.stderr
    keys = ("step", "loss", "lr", "grad_norm", "tokens")
    assert [[line[key] for key in keys] for line in resumed] == [[line[key] for key in keys] for line in straight]


def test_what_deepspeed_would_misread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"zero_optimization\.round_robin_gradients changes DeepSpeed"):
        save("qwen3-zero2-fp32", tmp_path, ranks=1, stage=2, zero={"round_robin_gradients": True})


def test_deepspeed_that_resumes_and_saves_our_client_state(tmp_path: Path) -> None:
    """A run of DeepSpeed that saves the client state it has loaded: its position is DeepSpeed's, not that state's."""
    torch = pytest.importorskip("torch")
    name = "qwen3-zero2-fp32"
    checkpoints = save(name, tmp_path, ranks=2, stage=2)
    tag = checkpoints / (checkpoints / "latest").read_text().strip()
    path = tag / "mp_rank_00_model_states.pt"
    model = torch.load(path, weights_only=True)
    model["mpzero"]["windows_seen"] = 1
    torch.save(model, path)
    (tag / "manifest.json").unlink()
    steps, result = train_golden(name, tmp_path / "resumed", f"--resume_from_checkpoint={tag}", ranks=2, stage=2)
    assert f"Resumed from checkpoint at step {SAVED_AFTER}" in result.stdout
    assert_follows(name, steps, FP32_TOLERANCE, first=SAVED_AFTER + 1)
