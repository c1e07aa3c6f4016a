#!/usr/bin/env python3
"""Trains one model with mpzero and with Hugging Face transformers, and compares the losses step by step.

    bench/compare_hugging_face.py FOLDER --build build --train_data T.h5 [--steps 100] [--device cuda]

Both programs start from the same random fp32 weights, read the same windows of the token file in file order, and use
the same AdamW, clipping and WarmupCosineLR. For Hugging Face, this script keeps fp32 master weights, runs forward and
backward on a bf16 copy, and converts the gradients to fp32 for the update, like mpzero. With --fp32, both programs
compute in fp32.

Writes FOLDER/mpzero.jsonl and FOLDER/hugging_face.jsonl and prints one JSON line. Exits with status 1 if the losses of
any step differ by more than the tolerance (nats per token).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import torch
from hugging_face import make_model
from measures import read_metrics, read_model
from visit import run_logged

OPTIMIZER = {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
WARM_UP_STEPS, FLOOR, CLIP = 10, 0.1, 1.0


def learning_rate(step: int, peak: float, total_steps: int) -> float:
    """Returns the rate of update `step` (from 1) in DeepSpeed's WarmupCosineLR with a logarithmic warmup from 0."""
    iteration = step - 2
    if iteration < 0:
        return 0.0
    if iteration < WARM_UP_STEPS:
        return peak * math.log(iteration + 1) / math.log(WARM_UP_STEPS)
    done = min(1.0, (iteration - WARM_UP_STEPS + 1) / max(1, total_steps - WARM_UP_STEPS))
    return peak * (FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * done)) / 2)


def windows(path: Path, seq_length: int, micro_batch: int, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields inputs and targets [micro_batch, seq_length] of each step. Window i is tokens[i·S : i·S+S+1]."""
    with h5py.File(path) as file:
        tokens = torch.from_numpy(file["tokens"][: steps * micro_batch * seq_length + 1].astype("int64"))
    if len(tokens) < steps * micro_batch * seq_length + 1:
        sys.exit(f"{path} has too few tokens for {steps} steps of {micro_batch} x {seq_length}; lower --steps")
    for step in range(steps):
        first = step * micro_batch * seq_length
        chunk = tokens[first : first + micro_batch * seq_length + 1]
        yield chunk[:-1].view(micro_batch, seq_length), chunk[1:].view(micro_batch, seq_length)


def train_hugging_face(arguments: argparse.Namespace, config: dict, weights: Path, attention: str) -> list[dict]:
    """Trains on the same windows. Returns the metrics of each step, with mpzero's names."""
    device = torch.device(arguments.device)
    dtype = torch.float32 if arguments.fp32 else torch.bfloat16
    with device:
        model = make_model(config, torch.float32, attention)
    model.load_state_dict(type(model).from_pretrained(weights, dtype=torch.float32).state_dict())
    # Parameters are copies of the master weights in the compute dtype. A tied head is a single parameter in both.
    masters = [parameter.detach().clone() for parameter in model.parameters()]
    model.to(dtype)
    settings = {"betas": tuple(OPTIMIZER["betas"]), "eps": OPTIMIZER["eps"], "weight_decay": OPTIMIZER["weight_decay"]}
    optimizer = torch.optim.AdamW(masters, lr=0.0, **settings)
    metrics = []
    batches = windows(arguments.train_data, arguments.seq_length, arguments.micro_batch, arguments.steps)
    for step, (inputs, targets) in enumerate(batches, start=1):
        logits = model(input_ids=inputs.to(device)).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
        del logits
        loss.backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad = parameter.grad.float()
            parameter.grad = None
        norm = torch.nn.utils.clip_grad_norm_(masters, CLIP)
        optimizer.param_groups[0]["lr"] = learning_rate(step, arguments.lr, arguments.steps)
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters(), strict=True):
                parameter.copy_(master)
        line = {"step": step, "loss": loss.item(), "lr": optimizer.param_groups[0]["lr"], "grad_norm": norm.item()}
        metrics.append(line)
    return metrics


def train_mpzero(arguments: argparse.Namespace, weights: Path) -> list[dict]:
    folder: Path = arguments.folder
    config = {
        "train_micro_batch_size_per_gpu": arguments.micro_batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": CLIP,
        "bf16": {"enabled": not arguments.fp32},
        "optimizer": {"type": "AdamW", "params": {"lr": arguments.lr, **OPTIMIZER}},
        "scheduler": {
            "type": "WarmupCosineLR",
            "params": {
                "warmup_num_steps": WARM_UP_STEPS,
                "warmup_min_ratio": 0.0,
                "cos_min_ratio": FLOOR,
                "total_num_steps": arguments.steps,
            },
        },
        "zero_optimization": {"stage": arguments.stage},
    }
    (folder / "ds_config.json").write_text(json.dumps(config), encoding="utf-8")
    metrics = folder / "mpzero.jsonl"
    metrics.unlink(missing_ok=True)
    flags = {
        "deepspeed_config": folder / "ds_config.json",
        "model_config": weights / "config.json",
        "init_from": weights,
        "train_data": arguments.train_data,
        "seq_length": arguments.seq_length,
        "max_steps": arguments.steps,
        "shuffle": "false",
        "checkpoint_freq": 0,
        "checkpoint_dir": folder / "checkpoints",
        "resume_from_checkpoint": "none",
        "save_final": "false",  # allows further runs in the same folder
        "metrics_file": metrics,
        "device": arguments.device,
    }
    command = ["mpirun", "--bind-to", "none", "-n", "1", str(arguments.build / "bin" / "mpzero")]
    command += ["train", *(f"--{flag}={value}" for flag, value in flags.items())]
    status = run_logged(command, folder / "mpzero.log", 600)
    if status != 0:
        sys.exit(f"mpzero exited with status {status}:\n{(folder / 'mpzero.log').read_text(encoding='utf-8')[-2000:]}")
    return read_metrics(metrics)


def compare(name: str, ours: list[dict], theirs: list[dict], tolerance: float) -> dict:
    """Compares all steps. Exits if the runs have different lengths or learning rates."""
    if [line["step"] for line in ours] != [line["step"] for line in theirs] or not ours:
        sys.exit(f"{name}: cannot compare runs of {len(ours)} and {len(theirs)} steps")
    for one, other in zip(ours, theirs, strict=True):
        if not math.isclose(one["lr"], other["lr"], rel_tol=1e-9, abs_tol=1e-15):
            sys.exit(f"{name}: the learning rates at step {one['step']} differ: {one['lr']} and {other['lr']}")
    apart = [abs(one["loss"] - other["loss"]) for one, other in zip(ours, theirs, strict=True)]
    norms = [abs(one["grad_norm"] / other["grad_norm"] - 1) for one, other in zip(ours, theirs, strict=True)]
    worst = max(range(len(apart)), key=lambda index: apart[index] if math.isfinite(apart[index]) else math.inf)
    return {
        "compare": name,
        "steps": len(apart),
        "largest_loss_difference": apart[worst],
        "at_step": ours[worst]["step"],
        "mean_loss_difference": sum(apart) / len(apart),
        "largest_grad_norm_difference_relative": max(norms),
        "first_losses": [ours[0]["loss"], theirs[0]["loss"]],
        "last_losses": [ours[-1]["loss"], theirs[-1]["loss"]],
        "tolerance": tolerance,
        "agree": apart[worst] <= tolerance,
    }


def write_metrics(path: Path, metrics: list[dict]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in metrics), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--train_data", type=Path, required=True)
    parser.add_argument("--model_type", default="qwen3_0_6b")
    parser.add_argument("--vocab_size", type=int)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seq_length", type=int, default=1024)
    parser.add_argument("--micro_batch", type=int, default=4)
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-4, help="peak learning rate (default: 1e-4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--fp32", action="store_true", help="compute in fp32 in both programs")
    parser.add_argument("--control", action="store_true", help="also run Hugging Face with eager attention")
    parser.add_argument("--tolerance", type=float, default=1e-2, help="nats per token (default: 0.01)")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    config = read_model(arguments.model_type, arguments.vocab_size)
    weights = arguments.folder / "weights"
    torch.manual_seed(arguments.seed)
    with torch.device(arguments.device):
        make_model(config, torch.float32).save_pretrained(weights)
    (weights / "config.json").write_text(json.dumps(config), encoding="utf-8")
    ours = train_mpzero(arguments, weights)
    theirs = train_hugging_face(arguments, config, weights, "sdpa")
    write_metrics(arguments.folder / "hugging_face.jsonl", theirs)
    verdict = compare("mpzero and Hugging Face", ours, theirs, arguments.tolerance)
    print(json.dumps(verdict))
    if arguments.control:
        control = train_hugging_face(arguments, config, weights, "eager")
        write_metrics(arguments.folder / "hugging_face_eager.jsonl", control)
        print(json.dumps(compare("Hugging Face with two attention kernels", control, theirs, arguments.tolerance)))
    return 0 if verdict["agree"] else 1


if __name__ == "__main__":
    sys.exit(main())
