"""Writes fixtures/lr_schedules.json and fixtures/trainer_lr_schedules.json: the learning rates that DeepSpeed's own
schedulers, and those of the Hugging Face Trainer, apply, update by update.

Run it where both are installed:  uv run --group interop tests/parallel/make_lr_schedules.py
"""

import json
from pathlib import Path

import deepspeed
import torch
import transformers
from deepspeed.runtime.lr_schedules import WarmupCosineLR, WarmupDecayLR, WarmupLR
from transformers.optimization import get_scheduler

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


# learning rate, warm-up steps, steps of the decay, steps of the run
STABLE_CASES = [(5e-5, 0, 1, 6), (5e-5, 3, 4, 20), (1e-3, 5, 15, 20), (0.01, 2, 7, 12)]

# learning rate, step_size, gamma, steps of the run
STEP_CASES = [(2e-3, 5, 0.7, 18), (2e-3, 1, 0.85, 6)]

# lr_scheduler_type, learning rate, warm-up steps, steps of the run
TRAINER_CASES = [
    ("linear", 2e-5, 0, 50),
    ("linear", 5e-5, 7, 30),
    ("linear", 1e-3, 1, 5),
    ("linear", 1e-3, 9, 6),
    ("linear", 1e-3, 4, 4),
    ("linear", 0.01, 0, 1),
    ("linear", 0.01, 2, 12),
    ("cosine", 2e-5, 0, 50),
    ("cosine", 5e-5, 7, 30),
    ("cosine", 1e-3, 9, 6),
    ("cosine", 0.01, 3, 12),
    ("constant", 3e-4, 0, 8),
    ("constant_with_warmup", 3e-4, 0, 8),
    ("constant_with_warmup", 3e-4, 5, 12),
]


def applied_rates(optimizer: torch.optim.Optimizer, scheduler: object, updates: int) -> list[float]:
    """The rate in the optimizer when each update happens: DeepSpeed and the Trainer step the optimizer first, then the
    scheduler."""
    rates = []
    for _ in range(updates):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


def make_optimizer(lr: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def deepspeed_rates(name: str, lr: float, params: dict, updates: int) -> list[float]:
    optimizer = make_optimizer(lr)
    return applied_rates(optimizer, SCHEDULERS[name](optimizer, **params), updates)


def trainer_rates(name: str, lr: float, warmup_steps: int, steps: int, **kwargs: int) -> list[float]:
    """As Trainer.create_scheduler makes the schedule; kwargs: lr_scheduler_kwargs."""
    optimizer = make_optimizer(lr)
    scheduler = get_scheduler(
        name, optimizer, num_warmup_steps=warmup_steps, num_training_steps=steps, scheduler_specific_kwargs=kwargs
    )
    return applied_rates(optimizer, scheduler, steps)


def step_rates(lr: float, size: int, gamma: float, steps: int) -> list[float]:
    optimizer = make_optimizer(lr)
    return applied_rates(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, size, gamma), steps)


def write(name: str, package: str, version: str, cases: list[dict]) -> None:
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    output = Path(__file__).parent / "fixtures" / name
    output.write_text(f'{{"{package}": "{version}", "cases": [\n  {lines}\n]}}\n')


def main() -> None:
    cases = [
        {"type": name, "optimizer_lr": lr, "params": params, "lr": deepspeed_rates(name, lr, params, updates)}
        for name, lr, params, updates in CASES
    ]
    write("lr_schedules.json", "deepspeed", deepspeed.__version__, cases)
    cases = [
        {"type": name, "lr": lr, "warmup_steps": warmup, "steps": steps}
        | {"rates": trainer_rates(name, lr, warmup, steps)}
        for name, lr, warmup, steps in TRAINER_CASES
    ]
    cases += [
        {"type": "warmup_stable_decay", "lr": lr, "warmup_steps": warmup, "decay_steps": decay, "steps": steps}
        | {"rates": trainer_rates("warmup_stable_decay", lr, warmup, steps, num_decay_steps=decay)}
        for lr, warmup, decay, steps in STABLE_CASES
    ]
    cases += [
        {"type": "step_lr", "lr": lr, "warmup_steps": 0, "decay_steps": size, "gamma": gamma, "steps": steps}
        | {"rates": step_rates(lr, size, gamma, steps)}
        for lr, size, gamma, steps in STEP_CASES
    ]
    write("trainer_lr_schedules.json", "transformers", transformers.__version__, cases)


if __name__ == "__main__":
    main()
