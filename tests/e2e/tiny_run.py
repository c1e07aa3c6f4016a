"""A training run of seconds: a tiny model on random tokens, in its own folder."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from trainer import ENVIRONMENT, command, metrics, train, write_tokens

VOCAB_SIZE = 64

MODEL = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "initializer_range": 0.02,
}


@dataclass
class TinyRun:
    folder: Path
    stage: int = 2
    ranks: int = 2
    micro_batch: int = 2
    bf16: bool = False
    device: str = "cpu"
    seq_length: int = 16
    config: dict = field(default_factory=dict)  # merged over the ds_config.json

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        self.data = self.folder / "train.h5"
        if not self.data.exists():
            # Tokens that mostly follow a rule, so that there is something to learn.
            noise = rng.integers(0, VOCAB_SIZE, 3001)
            ramp = np.cumsum(np.ones(3001, dtype=np.int64) * 3) % VOCAB_SIZE
            write_tokens(self.data, np.where(rng.random(3001) < 0.8, ramp, noise), VOCAB_SIZE)
        (self.folder / "tiny.json").write_text(json.dumps(MODEL))

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def errors(self) -> Path:
        return self.folder / "errors.txt"

    @property
    def latest(self) -> Path:
        return self.checkpoints / (self.checkpoints / "latest").read_text().strip()

    def flags(self) -> list[str]:
        config = {
            "train_micro_batch_size_per_gpu": self.micro_batch,
            "gradient_accumulation_steps": 2,
            "gradient_clipping": 1.0,
            "bf16": {"enabled": self.bf16},
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1}},
            "scheduler": {
                "type": "WarmupCosineLR",
                "params": {"warmup_num_steps": 2, "cos_min_ratio": 0.1, "total_num_steps": 20},
            },
            "zero_optimization": {"stage": self.stage},
            **self.config,
        }
        (self.folder / "ds_config.json").write_text(json.dumps(config))
        return [
            f"--deepspeed_config={self.folder / 'ds_config.json'}",
            f"--model_config={self.folder / 'tiny.json'}",
            f"--train_data={self.data}",
            f"--seq_length={self.seq_length}",
            f"--checkpoint_dir={self.checkpoints}",
            f"--metrics_file={self.folder / 'metrics.jsonl'}",
            f"--device={self.device}",
        ]

    def train(self, *flags: object, check: bool = True, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return train(*self.flags(), *flags, ranks=self.ranks, check=check, timeout=timeout)

    @contextmanager
    def running(self, *flags: object) -> Iterator[subprocess.Popen]:
        """A training run in the background that has saved its first checkpoint; it is ended with the block. Its stderr
        goes to `errors`."""
        with self.errors.open("w") as errors:
            process = subprocess.Popen(
                command(*self.flags(), *flags, ranks=self.ranks),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **ENVIRONMENT},
            )
        try:
            deadline = time.monotonic() + 200
            while not (self.checkpoints / "latest").exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(timeout=60)

    def metrics(self) -> list[dict]:
        return metrics(self.folder / "metrics.jsonl")
