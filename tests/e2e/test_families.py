"""Families of decoders and rope scalings against transformers and torch's AdamW, in fp32: three steps from random
weights on 1 to 4 ranks, the weights after them, DeepSpeed's files."""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path

import h5py
import pytest
from tiny_run import MODEL, TinyRun
from trainer import BUILD

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.e2e

STEPS, WINDOWS, LENGTH = 3, 12, 16
# With eps 1e-8, AdamW takes whole steps by the sign of gradients that are rounding errors.
ADAMW = {"lr": 1e-2, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}
SIZES = {key: MODEL[key] for key in MODEL if key not in ("model_type", "architectures", "head_dim", "rope_theta")}
SIZES |= {"num_hidden_layers": 4, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 1, "beta_slow": 0.1}
FAMILIES = {
    "mistral": ("Mistral", {"sliding_window": LENGTH}),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 6.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.3,
            "logits_scaling": 4.0,
        },
    ),
    "olmo2": ("Olmo2", {"tie_word_embeddings": False}),
    "phi3": ("Phi3", {"tie_word_embeddings": False}),
    # Sequences are longer than the original positions.
    "phi3-longrope": (
        "Phi3",
        {
            "original_max_position_embeddings": 12,
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.0, 1.0, 1.5, 2.0],
                "long_factor": [1.0, 2.0, 4.0, 8.0],
                "rope_theta": 100.0,
            },
        },
    ),
    "seed_oss": (
        "SeedOss",
        {"head_dim": 12, "attention_dropout": 0.0, "residual_dropout": 0.0, "tie_word_embeddings": False},
    ),
    "smollm3": ("SmolLM3", {}),
    "qwen3-yarn": ("Qwen3", {"head_dim": 8, "rope_parameters": {**YARN, "rope_theta": 100.0}}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 100.0}}),
    # Longer sequences than max_position_embeddings, which scales the frequencies.
    "llama-dynamic": (
        "Llama",
        {
            "max_position_embeddings": 8,
            "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0},
        },
    ),
}


def random_model(family: str) -> torch.nn.Module:
    name, keys = FAMILIES[family]
    torch.manual_seed(3)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **keys})
    model = getattr(transformers, f"{name}ForCausalLM")(config).float()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return model


def train_with_torch(model: torch.nn.Module, data: Path) -> list[tuple[float, float]]:
    """Loss and norm of the gradient of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    steps = []
    with h5py.File(data) as file:
        tokens = torch.tensor(file["tokens"][: STEPS * WINDOWS * LENGTH + 1].astype("int64"))
    batches = (part.view(STEPS, WINDOWS, LENGTH) for part in (tokens[:-1], tokens[1:]))
    for inputs, targets in zip(*batches, strict=True):
        logits = model(input_ids=inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        norm = torch.nn.utils.get_total_norm([weight.grad for weight in model.parameters()])
        steps.append((loss.item(), norm.item()))
        optimizer.step()
        optimizer.zero_grad()
    return steps


def run_of(folder: Path, weights: Path, ranks: int, stage: int) -> TinyRun:
    constant = {"type": "WarmupLR", "params": {"warmup_min_lr": ADAMW["lr"], "warmup_max_lr": ADAMW["lr"]}}
    micro_batch = 2 if ranks == 3 else 3
    config = {
        "gradient_accumulation_steps": WINDOWS // (ranks * micro_batch),
        "gradient_clipping": 0,
        "optimizer": {"type": "AdamW", "params": ADAMW},
        "scheduler": constant,
    }
    run = TinyRun(folder, stage=stage, ranks=ranks, micro_batch=micro_batch, seq_length=LENGTH, config=config)
    (folder / "tiny.json").write_text((weights / "config.json").read_text())
    return run


@pytest.mark.parametrize("family", FAMILIES)
def test_three_steps(tmp_path: Path, family: str) -> None:
    model = random_model(family)
    model.save_pretrained(tmp_path / "weights")
    expected = []
    for ranks, stage in ((1, 0), (4, 3)):
        run = run_of(tmp_path / f"stage{stage}", tmp_path / "weights", ranks, stage)
        expected = expected or train_with_torch(model, run.data)
        run.train(f"--max_steps={STEPS}", "--shuffle=false", f"--init_from={tmp_path / 'weights'}")
        made = [(step["loss"], step["grad_norm"]) for step in run.metrics()]
        assert made == [pytest.approx(step, rel=1e-4) for step in expected], (ranks, stage)

    exported = tmp_path / "exported"
    subprocess.run([BUILD / "bin/zero_to_fp32", run.checkpoints, exported], check=True, capture_output=True)
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(exported, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    for (name, weight), theirs in zip(loaded.named_parameters(), model.parameters(), strict=True):
        # Three updates move an element by up to 3e-2. Where the gradient is near 0, they depend on rounding.
        assert (weight - theirs).abs().mean() < 1e-4, name


@pytest.mark.parametrize("family", ["granite", "olmo2", "phi3", "seed_oss", "smollm3"])
def test_deepspeed_reads_what_is_saved(tmp_path: Path, family: str) -> None:
    """Parameters lie in the order of transformers' modules, and DeepSpeed's converter finds the weights of ours."""
    pytest.importorskip("deepspeed")
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    from safetensors.torch import load_file

    model = random_model(family)
    model.save_pretrained(tmp_path / "weights")
    for stage in (2, 3):
        run = run_of(tmp_path / f"stage{stage}", tmp_path / "weights", 2, stage)
        run.train("--max_steps=1", f"--init_from={tmp_path / 'weights'}", "--checkpoint_format=deepspeed")
        states = torch.load(min(run.latest.glob("*_model_states.pt")), weights_only=False)
        order = [name for group in states["param_shapes"] for name in group]
        assert order == [name for name, _ in model.named_parameters()]
        with contextlib.redirect_stdout(io.StringIO()):
            theirs = get_fp32_state_dict_from_zero_checkpoint(str(run.checkpoints))
        exported = tmp_path / f"exported{stage}"
        subprocess.run([BUILD / "bin/zero_to_fp32", run.checkpoints, exported], check=True, capture_output=True)
        for name, weight in load_file(exported / "model.safetensors").items():
            assert torch.equal(theirs[name], weight), name
        run.train("--max_steps=2")
        assert run.metrics()[-1]["step"] == 2
