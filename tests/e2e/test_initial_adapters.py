"""Which adapters and base a run begins with: recorded, compared by each later start, and refused where they differ."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from test_lora import base_model, convert, run_in
from tiny_run import TinyRun
from trainer import BUILD

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("initial") / "base"
    base_model("qwen3").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = run_in(tmp_path_factory.mktemp("trained"), base, 1, 2)
    run.train(f"--init_from={base}", "--lora_r=4", "--max_steps=2", "--checkpoint_freq=1")
    return run


@pytest.fixture
def adapters(trained: TinyRun, tmp_path: Path) -> Path:
    convert(trained, tmp_path / "adapters")
    return tmp_path / "adapters"


def refusal(run: TinyRun, *flags: object) -> str:
    result = run.train(*flags, check=False)
    assert result.returncode == 2, result.stderr
    return result.stderr


def change_settings(adapters: Path, **settings: object) -> None:
    path = adapters / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def change_adapters(adapters: Path, value: float) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    path = adapters / "adapter_model.safetensors"
    tensors = safetensors.load_file(path)
    next(iter(tensors.values())).view(-1)[5] = torch.tensor(value)
    safetensors.save_file(tensors, path)


def test_a_base_with_adapters_of_its_own_is_refused(base: Path, adapters: Path, tmp_path: Path) -> None:
    """Adapters in a folder with weights that names itself as its base, and two that name each other."""
    for name in ("a", "b"):
        shutil.copytree(base, tmp_path / name)
        shutil.copytree(adapters, tmp_path / name, dirs_exist_ok=True)
    for of_a in ("a", "b"):
        change_settings(tmp_path / "a", base_model_name_or_path=str(tmp_path / of_a))
        change_settings(tmp_path / "b", base_model_name_or_path=str(tmp_path / "a"))
        error = refusal(run_in(tmp_path / "run", base, 1, 2), f"--init_from={tmp_path / 'a'}", "--max_steps=1")
        assert str(tmp_path / of_a) in error and "--base_model" in error
        words = [str(BUILD / "bin" / "mpzero"), "generate", str(tmp_path / "a"), "--prompt_tokens=3", "--device=cpu"]
        assert subprocess.run(words, check=False, capture_output=True).returncode == 2


def test_an_export_into_the_checkpoints_does_not_hide_them(trained: TinyRun, base: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path / "run", base, 1, 2)
    shutil.copytree(trained.checkpoints, run.checkpoints)
    words = [str(BUILD / "bin" / "mpzero"), "generate", str(run.checkpoints), "--prompt_tokens=3,6"]
    words += ["--max_tokens=4", "--temperature=0", "--device=cpu"]
    before = subprocess.run(words, check=True, capture_output=True, text=True)
    subprocess.run(
        [str(BUILD / "bin" / "zero_to_fp32"), str(run.checkpoints), str(tmp_path / "old"), "--tag=tiny-1steps"],
        check=True,
    )
    shutil.copytree(tmp_path / "old", run.checkpoints, dirs_exist_ok=True)
    after = subprocess.run(words, check=True, capture_output=True, text=True)
    assert after.stdout == before.stdout and str(run.latest) in after.stderr
    other = run_in(tmp_path / "other", base, 1, 2).train(f"--init_from={run.checkpoints}", "--max_steps=1")
    assert f"Adapters: {run.latest}" in other.stdout


def test_a_random_base_is_not_resumed_with_another(base: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path, base, 1, 2)
    run.train("--lora_r=4", "--max_steps=1")
    assert str(base) in refusal(run, "--lora_r=4", f"--init_from={base}", "--max_steps=2")


def test_a_checkpoint_is_given_its_own_base(trained: TinyRun, base: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    shutil.copytree(base, tmp_path / "base")
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = safetensors.load_file(tmp_path / "base" / "model.safetensors")
    next(iter(tensors.values())).add_(torch.tensor(1.0))
    safetensors.save_file(tensors, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    run = run_in(tmp_path / "run", base, 2, 2)
    hashes = json.loads((trained.latest / "manifest.json").read_text())["content"]["run"]["init_from_xxh3_64"]
    flags = [f"--init_from={trained.checkpoints}", "--max_steps=1"]
    error = refusal(run, *flags, f"--base_model={tmp_path / 'base'}")
    assert str(tmp_path / "base") in error and hashes in error
    shutil.copytree(base, tmp_path / "same")
    run.train(*flags, f"--base_model={tmp_path / 'same'}")


def test_a_run_continues_with_its_adapters_alone(base: Path, adapters: Path, tmp_path: Path) -> None:
    """Others of the same base are refused; the same elsewhere, and those that are gone, are not needed."""
    run = run_in(tmp_path / "run", base, 2, 2)
    run.train(f"--init_from={adapters}", "--max_steps=1")
    shutil.copytree(adapters, tmp_path / "same")
    shutil.copytree(adapters, tmp_path / "other")
    change_adapters(tmp_path / "other", 0.5)
    error = refusal(run, f"--init_from={tmp_path / 'other'}", "--max_steps=2")
    assert str(adapters) in error and str(tmp_path / "other") in error
    assert str(tmp_path / "other") in refusal(run, f"--init_from={tmp_path / 'other'}", "--max_steps=2", "--dry_run")
    run.train(f"--init_from={tmp_path / 'same'}", "--max_steps=2")
    shutil.rmtree(adapters)
    assert str(adapters) in run.train(f"--init_from={adapters}", "--max_steps=3").stderr
    run.ranks, run.stage, run.config["gradient_accumulation_steps"] = 1, 3, 6
    run.train(f"--init_from={base}", "--lora_r=4", "--max_steps=4")
    assert [step["step"] for step in run.metrics()] == [1, 2, 3, 4]


def test_overwrite_does_not_move_the_adapters_away(trained: TinyRun, base: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path, base, 1, 2)
    shutil.copytree(trained.checkpoints, run.checkpoints)
    tag = run.latest.name
    refusal(run, f"--init_from={run.checkpoints}", "--max_steps=1", "--overwrite", "--resume_from_checkpoint=none")
    assert (run.checkpoints / tag).is_dir()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_adapters_that_are_not_finite_are_refused(base: Path, adapters: Path, tmp_path: Path, value: float) -> None:
    change_adapters(adapters, value)
    error = refusal(run_in(tmp_path / "run", base, 1, 2), f"--init_from={adapters}", "--max_steps=1")
    assert "adapter_model.safetensors" in error and "lora_A" in error and "[0, 5]" in error


def test_a_dry_run_opens_the_adapters(base: Path, adapters: Path, tmp_path: Path) -> None:
    weights = adapters / "adapter_model.safetensors"
    content = weights.read_bytes()
    run = run_in(tmp_path / "run", base, 1, 2)
    run.train(f"--init_from={adapters}", "--max_steps=1", "--dry_run")
    weights.write_bytes(content[:-100])
    assert str(weights) in refusal(run, f"--init_from={adapters}", "--max_steps=1", "--dry_run")
    weights.write_bytes(content)
    change_settings(adapters, r=8)
    assert "lora_A" in refusal(run, f"--init_from={adapters}", "--max_steps=1", "--dry_run")


def test_a_resume_without_adapters_names_their_flags(trained: TinyRun, base: Path, tmp_path: Path) -> None:
    run = run_in(tmp_path, base, 1, 2)
    shutil.copytree(trained.checkpoints, run.checkpoints)
    assert "--lora_r 4" in refusal(run, f"--init_from={base}", "--max_steps=3")


@pytest.mark.parametrize("targets", [".*_proj", "full names"])
def test_targets_follow_from_the_tensors(base: Path, adapters: Path, tmp_path: Path, targets: str) -> None:
    """PEFT also saves a pattern, or the names of all projections."""
    run = run_in(tmp_path / "run", base, 1, 2)
    run.train(f"--init_from={adapters}", "--max_steps=1")
    names = json.loads((adapters / "adapter_config.json").read_text())["target_modules"]
    full = [f"model.layers.{layer}.{name}" for layer in range(2) for name in names]
    change_settings(adapters, target_modules=full if targets == "full names" else targets)
    other = run_in(tmp_path / "other", base, 1, 2)
    other.train(f"--init_from={adapters}", "--max_steps=1")
    assert other.metrics()[0]["loss"] == run.metrics()[0]["loss"]
