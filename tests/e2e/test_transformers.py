"""zero_to_fp32 writes the model that was trained: transformers computes the same validation loss."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import h5py
import pytest
from tiny_run import MODEL, VOCAB_SIZE, TinyRun
from trainer import BUILD, write_tokens

pytestmark = pytest.mark.e2e

SEQ_LENGTH = 16


def transformers_loss(folder: Path, data: Path, windows: int, dtype: str = "float32") -> float:
    """Mean cross-entropy over the first `windows` windows of a token file."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with h5py.File(data) as file:
        tokens = torch.tensor(file["tokens"][: windows * SEQ_LENGTH + 1].astype("int64"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    inputs, targets = tokens[:-1].view(windows, SEQ_LENGTH), tokens[1:].view(windows, SEQ_LENGTH)
    with torch.no_grad():
        logits = model(input_ids=inputs).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


@pytest.mark.parametrize("family", ["qwen3", "llama", "qwen2"])
def test_validation_loss(tmp_path: Path, family: str) -> None:
    run = TinyRun(tmp_path, stage=3)
    if family == "llama":
        llama = {**MODEL, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False}
        (tmp_path / "tiny.json").write_text(json.dumps(llama))
    if family == "qwen2":
        qwen2 = {**MODEL, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
        (tmp_path / "tiny.json").write_text(json.dumps(qwen2))
    with h5py.File(run.data) as file:
        # 20 windows: the last of the 3 batches of 2 ranks x 4 is not full.
        validation = write_tokens(
            tmp_path / "validation.h5", file["tokens"][100 : 100 + 20 * SEQ_LENGTH + 1], VOCAB_SIZE
        )
    run.micro_batch = 4
    run.train("--max_steps=15", f"--validation_data={validation}", "--validation_freq=15")
    ours = run.metrics()[-1]["validation_loss"]
    weights = tmp_path / "weights"
    program = str(BUILD / "bin" / "zero_to_fp32")
    subprocess.run([program, str(run.checkpoints), str(weights)], check=True, timeout=120, capture_output=True)
    assert transformers_loss(weights, validation, windows=20) == pytest.approx(ours, rel=1e-4)
    # Training changed the weights, so the agreement is not that of initial weights.
    assert ours < run.metrics()[0]["loss"] - 0.2


def test_weights_that_transformers_saved_start_a_run(tmp_path: Path) -> None:
    """With a Qwen2 whose biases are not zero: the loss of the first step is that of transformers."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    run = TinyRun(tmp_path, stage=3)
    sizes = {key: MODEL[key] for key in MODEL if key not in ("model_type", "architectures", "head_dim")}
    torch.manual_seed(3)
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    weights = tmp_path / "weights"
    model.save_pretrained(weights)
    (tmp_path / "tiny.json").write_text((weights / "config.json").read_text())
    run.train("--max_steps=1", "--shuffle=false", f"--init_from={weights}")
    # 2 ranks x 2 sequences x 2 micro-batches.
    expected = transformers_loss(weights, run.data, windows=8)
    assert run.metrics()[0]["loss"] == pytest.approx(expected, rel=1e-5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
    model.save_pretrained(tmp_path / "without_biases")
    assert abs(transformers_loss(tmp_path / "without_biases", run.data, windows=8) - expected) > 1e-3
