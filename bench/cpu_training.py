#!/usr/bin/env python3
"""Compares CPU training with Hugging Face transformers: tokens per second and a breakdown of the step time.

    bench/cpu_training.py FOLDER [WORK ...] [--steps 8] [--build build]

Runs each workload with mpzero and with transformers (eager mode, torch's fused AdamW) on the same number of cores, with
random tokens. Reports medians over the steps after the warmup. Prints a JSON line for each run and each comparison,
and writes the lines to FOLDER/cpu_training.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from hugging_face_peer import Work as PeerWork
from hugging_face_peer import measure
from measures import MPI_AS_ROOT, medians, read_metrics, read_model

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Work:
    model: str
    micro_batch: int  # over all ranks
    seq_length: int
    ranks: int = 1
    bf16: bool = True


WORKS = {
    "qwen3_0_6b_bf16": Work("qwen3_0_6b", 1, 512),
    "qwen3_0_6b_fp32": Work("qwen3_0_6b", 1, 512, bf16=False),
    "qwen3_0_6b_bf16_2ranks": Work("qwen3_0_6b", 2, 512, ranks=2),
    "qwen3_tiny": Work("qwen3_tiny", 16, 256, ranks=2),
    "qwen3_tiny_fp32": Work("qwen3_tiny", 16, 256, ranks=2, bf16=False),
}


def settings(work: Work) -> dict:
    return {
        "train_micro_batch_size_per_gpu": work.micro_batch // work.ranks,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": work.bf16},
        "optimizer": {"type": "AdamW", "params": {"lr": 5e-5, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "zero_optimization": {"stage": 2},
    }


def command(work: Work, folder: Path, arguments: argparse.Namespace) -> list[str]:
    flags = {
        "model_type": work.model,
        "deepspeed_config": folder / "ds_config.json",
        "train_data": folder / "tokens.h5",
        "seq_length": work.seq_length,
        "max_steps": arguments.warm_up + arguments.steps,
        "checkpoint_freq": 0,
        "checkpoint_dir": folder / "checkpoints",
        "resume_from_checkpoint": "none",
        "save_final": "false",
        "metrics_file": folder / "metrics.jsonl",
        "device": "cpu",
    }
    start = ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(work.ranks)]
    return [
        *start,
        str(arguments.build.resolve() / "bin" / "mpzero"),
        "train",
        *(f"--{k}={v}" for k, v in flags.items()),
    ]


def run_mpzero(name: str, work: Work, arguments: argparse.Namespace) -> dict:
    folder = arguments.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ds_config.json").write_text(json.dumps(settings(work)), encoding="utf-8")
    vocabulary = read_model(work.model)["vocab_size"]
    tokens = folder / "tokens.h5"
    count = (arguments.warm_up + arguments.steps) * work.micro_batch * work.seq_length + 1
    maker = [sys.executable, str(REPOSITORY / "bench" / "random_tokens.py"), str(tokens)]
    subprocess.run([*maker, "--vocab_size", str(vocabulary), "--tokens", str(count)], check=True)
    (folder / "metrics.jsonl").unlink(missing_ok=True)
    environment = {**os.environ, **MPI_AS_ROOT}
    words = command(work, folder, arguments)
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False, cwd=REPOSITORY, encoding="utf-8"
    )
    (folder / "mpzero.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"{name}: mpzero exited with status {done.returncode}; see {folder / 'mpzero.log'}")
    found = medians(read_metrics(folder / "metrics.jsonl"), warm_up=arguments.warm_up)
    step = found["step_ms"] / 1e3
    return {"program": "mpzero", "work": name, "tokens_per_second": work.micro_batch * work.seq_length / step, **found}


def run_hugging_face(name: str, work: Work, arguments: argparse.Namespace) -> dict:
    peer = PeerWork(work.model, work.micro_batch, work.seq_length, "bf16" if work.bf16 else "fp32")
    found = measure(name, peer, torch.device("cpu"), warm_up=arguments.warm_up, steps=arguments.steps, compiled=False)
    return {
        "program": found["peer"],
        "work": name,
        "tokens_per_second": found["tokens_per_second_per_gpu"],
        "step_ms": found["step_ms"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("works", nargs="*", default=list(WORKS), metavar="WORK", help=f"choices: {', '.join(WORKS)}")
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build")
    parser.add_argument("--warm_up", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--no_peer", action="store_true", help="run only mpzero")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.works) - WORKS.keys())
    if unknown:
        parser.error(f"unknown workload {unknown[0]}; choose from {', '.join(WORKS)}")
    lines = []

    def report(line: dict) -> None:
        lines.append(line)
        print(json.dumps(line), flush=True)

    for name in arguments.works:
        work = WORKS[name]
        ours = run_mpzero(name, work, arguments)
        report(ours)
        if arguments.no_peer:
            continue
        theirs = run_hugging_face(name, work, arguments)
        report(theirs)
        ratio = ours["tokens_per_second"] / theirs["tokens_per_second"]
        report({"compare": name, "mpzero_to_hugging_face": round(ratio, 2)})
    (arguments.folder / "cpu_training.json").write_text(json.dumps(lines, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
