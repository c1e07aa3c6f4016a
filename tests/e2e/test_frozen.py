"""--freeze_parameters: losses, norms and weights are those of PyTorch with requires_grad=False, on any ranks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tiny_run import MODEL, TinyRun
from torch_training import train_in_torch
from trainer import BUILD

pytestmark = pytest.mark.e2e

SEQ_LENGTH, BATCH, STEPS = 16, 6, 6
# The embedding, with the tied head's matrix; a whole layer; of the other layer a part.
FROZEN = ["embed_tokens", r"layers\.0\.", r"layers\.1\.mlp"]


def reference(folder: Path, data: Path) -> tuple[list[float], list[float], dict]:
    """Losses and gradient norms of each step, and the weights after the last one."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**config))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    for name, weight in model.named_parameters():
        if "embed_tokens" in name or "layers.0." in name or "layers.1.mlp" in name:
            weight.requires_grad_(False)
    steps = train_in_torch(model, data, steps=STEPS, batch=BATCH, seq_length=SEQ_LENGTH, lr=0.01, clip=1.0)
    losses, norms = zip(*steps, strict=True)
    return list(losses), list(norms), {name: weight.detach() for name, weight in model.named_parameters()}


def test_trains_the_others_as_pytorch_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    weights = tmp_path / "weights"
    losses, norms, trained = reference(weights, TinyRun(tmp_path / "data").data)
    initial = safetensors.load_file(weights / "model.safetensors")
    # Ranks and stage, before and after a resume.
    for number, (before, after) in enumerate([((2, 3), (1, 0)), ((3, 1), (2, 2)), ((1, 2), (3, 3))]):
        run = TinyRun(tmp_path / str(number))
        (run.folder / "tiny.json").write_text((weights / "config.json").read_text())
        for steps, (ranks, stage) in ((STEPS // 2, before), (STEPS, after)):
            run.ranks, run.stage, run.micro_batch = ranks, stage, 1
            run.config = {
                "gradient_accumulation_steps": BATCH // ranks,
                "freeze": FROZEN,
                # Constant.
                "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0.01, "warmup_max_lr": 0.01}},
            }
            run.train(f"--max_steps={steps}", "--shuffle=false", f"--init_from={weights}")
        steps = run.metrics()
        assert [step["loss"] for step in steps] == pytest.approx(losses, rel=1e-4)
        assert [step["grad_norm"] for step in steps] == pytest.approx(norms, rel=1e-3)
        out = run.folder / "export"
        subprocess.run([BUILD / "bin" / "zero_to_fp32", run.checkpoints, out], check=True, capture_output=True)
        exported = safetensors.load_file(out / "model.safetensors")
        for name, weight in exported.items():
            if any(part in name for part in ("embed_tokens", "layers.0.", "layers.1.mlp")):
                assert torch.equal(weight, initial[name]), name
            else:
                assert torch.allclose(weight, trained[name], atol=2e-4), name
                assert not torch.equal(weight, initial[name]), name


def test_unfrozen_at_a_resume(tmp_path: Path) -> None:
    """There are no moments to train it on: the resume is refused, and nothing is lost."""
    run = TinyRun(tmp_path)
    run.train("--max_steps=2", "--freeze_parameters=mlp")
    result = run.train("--max_steps=4", check=False)
    assert result.returncode == 2
    assert "layers.0.frozen" in result.stderr and "--init_from" in result.stderr
    run.train("--max_steps=4", "--freeze_parameters=mlp")
    assert len(run.metrics()) == 4
