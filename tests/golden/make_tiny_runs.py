#!/usr/bin/env python3
"""Makes the runs tiny-* of this folder with stock DeepSpeed 0.19.8 on the CPU (interop group; a minute).

    make_tiny_runs.py [NAME ...]

Each has what DeepSpeed saved after step 6 of 12, as it wrote it but for the copies of its scripts that it adds, and in
trace.json what it computed itself in all 12 steps. The weights before step 1 are not kept: nothing starts from them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
DEEPSPEED_RUN = HERE.parent / "interop" / "deepspeed_run.py"
STEPS = 12
SAVED_AFTER = 6
RANKS = 2
SEQ_LENGTH = 16
VOCAB_SIZE = 48

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
COSINE = {
    "type": "WarmupCosineLR",
    "params": {"warmup_min_ratio": 0.0, "warmup_num_steps": 4, "cos_min_ratio": 0.1, "total_num_steps": 20},
}
DECAY = {
    "type": "WarmupDecayLR",
    "params": {
        "warmup_min_lr": 1e-4,
        "warmup_max_lr": 1e-2,
        "warmup_num_steps": 5,
        "total_num_steps": 15,
        "warmup_type": "linear",
    },
}
# Family, ZeRO stage, bf16, micro-batch, accumulation, schedule.
RUNS = {
    "tiny-qwen3-zero2-fp32": ("qwen3", 2, False, 2, 2, COSINE),
    "tiny-qwen3-zero2-bf16": ("qwen3", 2, True, 2, 2, COSINE),
    "tiny-llama-zero3-fp32": ("llama", 3, False, 1, 3, DECAY),
    "tiny-qwen3-zero0-fp32": ("qwen3", 0, False, 2, 2, COSINE),
    "tiny-qwen3-zero0-bf16": ("qwen3", 0, True, 2, 2, COSINE),
    "tiny-llama-zero0-fused": ("llama", 0, True, 2, 2, COSINE),
}


def save_model(family: str, folder: Path) -> None:
    """A model with random weights, as transformers writes it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(13)
    if family == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=True, initializer_range=0.2))
    else:
        model = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False, initializer_range=0.2))
    model.save_pretrained(folder)


def tokens() -> np.ndarray:
    """A stream that can be learned in part: most tokens follow each other by a rule."""
    rng = np.random.default_rng(13)
    count = STEPS * 8 * SEQ_LENGTH + 1
    ramp = np.cumsum(np.full(count, 5)) % VOCAB_SIZE
    return np.where(rng.random(count) < 0.8, ramp, rng.integers(0, VOCAB_SIZE, count)).astype(np.uint16)


def make(name: str) -> None:
    family, stage, bf16, micro_batch, accumulation, schedule = RUNS[name]
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "init").mkdir(parents=True)
    config = {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 0.5,
        "bf16": {"enabled": bf16},
        "zero_optimization": {"stage": stage, **({"offload_optimizer": {"device": "cpu"}} if stage else {})},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        },
        "scheduler": schedule,
    }
    (folder / "ds_config.json").write_text(json.dumps(config, indent=1) + "\n")
    np.save(folder / "tokens.npy", tokens())
    facts = {
        "ranks": RANKS,
        "dtype": "bf16" if bf16 else "fp32",
        "seq_length": SEQ_LENGTH,
        "family": family,
        "deepspeed": "0.19.8",
        "checkpoint_after_step": SAVED_AFTER,
    }
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / name
        shutil.copytree(folder, run)
        (run / "trace.json").write_text(json.dumps(facts))
        save_model(family, run / "init")
        flags = ["--ranks", RANKS, "--stage", stage, "--steps", STEPS, "--save_after", SAVED_AFTER]
        # Without ZeRO the optimizer's tensors are in another order than the model's where there are groups.
        flags += [] if stage else ["--no-offload", "--weight_decay_groups"]
        flags += ["--fused"] if name.endswith("fused") else []
        words = [sys.executable, DEEPSPEED_RUN, run, run / "result.json", "--save", run / "deepspeed", *flags]
        subprocess.run([*map(str, words), *(["--bf16"] if bf16 else [])], check=True)
        facts["trace"] = json.loads((run / "result.json").read_text())
        for script in (run / "deepspeed").glob("*.py"):
            script.unlink()
        shutil.copytree(run / "deepspeed", folder / "deepspeed")
        shutil.copyfile(run / "init" / "config.json", folder / "init" / "config.json")
    steps = ",\n".join(map(json.dumps, facts.pop("trace")))  # one step per line
    (folder / "trace.json").write_text(json.dumps(facts)[:-1] + f', "trace": [\n{steps}\n]}}\n')


def main() -> None:
    import deepspeed

    assert deepspeed.__version__ == "0.19.8", deepspeed.__version__
    for name in sys.argv[1:] or RUNS:
        make(name)


if __name__ == "__main__":
    main()
