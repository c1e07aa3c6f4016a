"""Writes fixtures/lr_schedules.json: the learning rates that DeepSpeed's own schedulers apply, update by update.

Run it where deepspeed is installed:  uv run --group interop tests/parallel/make_lr_schedules.py
"""

import json
from pathlib import Path

import deepspeed
import torch
from deepspeed.runtime.lr_schedules import WarmupCosineLR, WarmupDecayLR, WarmupLR

SCHEDULERS = {"WarmupLR": WarmupLR, "WarmupDecayLR": WarmupDecayLR, "WarmupCosineLR": WarmupCosineLR}

# name, optimizer lr, parameters, updates to record
CASES = [
    ("WarmupLR", 0.002, {"warmup_num_steps": 7}, 12),
    (
        "WarmupLR",
        0.002,
        {"warmup_min_lr": 1e-4, "warmup_max_lr": 3e-3, "warmup_num_steps": 10, "warmup_type": "linear"},
        16,
    ),
    ("WarmupLR", 0.002, {"warmup_num_steps": 1, "warmup_type": "linear"}, 6),
    ("WarmupDecayLR", 0.002, {"total_num_steps": 30, "warmup_num_steps": 6, "warmup_min_lr": 1e-5}, 36),
    (
        "WarmupDecayLR",
        0.002,
        {"total_num_steps": 25, "warmup_max_lr": 2e-3, "warmup_num_steps": 5, "warmup_type": "linear"},
        30,
    ),
    ("WarmupDecayLR", 0.002, {"total_num_steps": 4, "warmup_num_steps": 8}, 14),
    (
        "WarmupCosineLR",
        0.0015,
        {"total_num_steps": 100, "warmup_num_steps": 10, "cos_min_ratio": 0.1, "warmup_min_ratio": 0.2},
        106,
    ),
    (
        "WarmupCosineLR",
        0.0015,
        {"total_num_steps": 40, "warmup_num_steps": 10, "cos_min_ratio": 0.0, "warmup_type": "linear"},
        50,
    ),
    ("WarmupCosineLR", 5e-5, {"total_num_steps": 50, "warmup_num_steps": 10}, 60),
    ("WarmupCosineLR", 0.001, {"total_num_steps": 5, "warmup_num_steps": 8, "cos_min_ratio": 0.3}, 14),
    ("WarmupCosineLR", 0.001, {"total_num_steps": 12, "warmup_num_steps": 1, "cos_min_ratio": 0.5}, 14),
]


def applied_rates(name: str, lr: float, params: dict, updates: int) -> list[float]:
    """The rate in the optimizer when each update happens: DeepSpeed steps the optimizer first, then the scheduler."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = SCHEDULERS[name](optimizer, **params)
    rates = []
    for _ in range(updates):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        scheduler.step()
    return rates


def main() -> None:
    cases = [
        {"type": name, "optimizer_lr": lr, "params": params, "lr": applied_rates(name, lr, params, updates)}
        for name, lr, params, updates in CASES
    ]
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    output = Path(__file__).parent / "fixtures" / "lr_schedules.json"
    output.write_text(f'{{"deepspeed": "{deepspeed.__version__}", "cases": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    main()
