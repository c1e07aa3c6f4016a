#!/usr/bin/env python3
"""Many nodes on paper: draws speeds by the number of GPUs and prints them, from `mpzero plan`, and the best interval
between checkpoints.

bench/scale.py [--program build/bin/mpzero] [--instance p5.48xlarge] [--figure scale.png]

Llama-3-8B, 8,192 tokens, micro-batch 1, no accumulation: the work of a GPU stays the same while there are more of them.
Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
NODES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
GPUS_PER_NODE = 8
# Name, ZeRO stage, two levels, network.
LAYOUTS = [
    ("ZeRO-2, one level, EFA", 2, False, "efa"),
    ("ZeRO-2, two levels, EFA", 2, True, "efa"),
    ("ZeRO-3, one level, EFA", 3, False, "efa"),
    ("ZeRO-3, two levels, EFA", 3, True, "efa"),
    ("ZeRO-3, one level, TCP", 3, False, "socket"),
    ("ZeRO-3, two levels, TCP", 3, True, "socket"),
]
# 419 unexpected interruptions in 54 days of 16,384 GPUs: "The Llama 3 Herd of Models" (2024), section 3.3.4.
NODE_HOURS_BETWEEN_FAILURES = 54 * 24 * 16384 / GPUS_PER_NODE / 419
CHECKPOINT_BYTES = 12 * 8_030_261_248
# Assumptions: what a shared file system takes from all nodes together, and from one; detection, requeue and first step.
FILE_SYSTEM_RATE, NODE_RATE = 50e9, 2.5e9
RESTART_SECONDS = 300
# Measured on one node (bench/RESULTS.md): training stands still while states are copied.
STANDSTILL_SECONDS = 0.11


def plan(program: Path, instance: str, nodes: int, stage: int, two_levels: bool, network: str) -> dict | None:
    zero = {"stage": stage}
    if nodes > 1:
        zero["mics_shard_size"] = GPUS_PER_NODE if two_levels else nodes * GPUS_PER_NODE
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "zero_optimization": zero,
        "bf16": {"enabled": True},
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        command = [
            str(program),
            "plan",
            "--json",
            f"--instance={instance}",
            f"--nodes={nodes}",
            "--seq_length=8192",
            f"--model_config={ROOT / 'configs/models/llama_3_8b.json'}",
            f"--deepspeed_config={file.name}",
            f"--network={network}",
        ]
        result = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(result.stdout) if result.stdout.startswith("{") else None
    return found if found and found["step"] else None


def curve(program: Path, instance: str, layout: tuple) -> list[float | None]:
    _, stage, two_levels, network = layout
    plans = [plan(program, instance, nodes, stage, two_levels, network) for nodes in NODES]
    return [found["tokens_per_second_per_gpu"] if found else None for found in plans]


def speed_table(curves: dict[str, list[float | None]]) -> list[str]:
    lines = [
        "| layout | " + " | ".join(f"{nodes * GPUS_PER_NODE:,}" for nodes in NODES) + " |",
        "|---" * (len(NODES) + 1) + "|",
    ]
    for name, values in curves.items():
        shown = [f"{value:,.0f}" if value else "does not fit" for value in values]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return lines


def save_seconds(nodes: int) -> float:
    return CHECKPOINT_BYTES / min(FILE_SYSTEM_RATE, NODE_RATE * nodes)


def best_interval(cost: float, between_failures: float) -> float:
    """Daly 2006, first order with the checkpoint's own time left out: sqrt(2 cost M) - cost."""
    return math.sqrt(2 * cost * between_failures) - cost


def failure_table() -> list[str]:
    lines = [
        "| GPUs | between failures | a save takes | best interval, training stands still during a save | lost | "
        "best interval, saves in the background | lost |",
        "|---|---|---|---|---|---|---|",
    ]
    for nodes in NODES:
        between = NODE_HOURS_BETWEEN_FAILURES * 3600 / nodes
        save = save_seconds(nodes)
        cells = []
        for cost, least in ((save, 0.0), (STANDSTILL_SECONDS, save)):
            interval = max(best_interval(cost, between), least)
            # The last saved state is on average half an interval and a save old.
            lost = cost / interval + (interval / 2 + save + RESTART_SECONDS) / between
            cells += [f"{interval / 60:.1f} min", f"{lost:.2%}"]
        lines.append(
            f"| {nodes * GPUS_PER_NODE:,} | {between / 3600:,.0f} h | {save:.1f} s | " + " | ".join(cells) + " |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "bin" / "mpzero")
    parser.add_argument("--instance", default="p5.48xlarge")
    parser.add_argument("--figure", type=Path, default=Path("scale.png"))
    arguments = parser.parse_args()
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda layout: curve(arguments.program, arguments.instance, layout), LAYOUTS)
        curves = {layout[0]: values for layout, values in zip(LAYOUTS, found, strict=True)}
    figure, axes = plt.subplots(figsize=(8, 4.5))
    for name, values in curves.items():
        style = "--" if "TCP" in name else "-"
        gpus = [nodes * GPUS_PER_NODE for nodes, value in zip(NODES, values, strict=True) if value]
        axes.plot(gpus, [value for value in values if value], style, marker="o", markersize=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks([nodes * GPUS_PER_NODE for nodes in NODES], [str(nodes * GPUS_PER_NODE) for nodes in NODES])
    axes.set_xlabel(f"GPUs of {arguments.instance}")
    axes.set_ylabel("tokens/s/GPU, computed")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)
    axes.set_title("Llama-3-8B, 8,192 tokens, micro-batch 1: computed, not measured", fontsize=10)
    figure.tight_layout()
    figure.savefig(arguments.figure, dpi=110)
    print("\n".join([*speed_table(curves), "", *failure_table()]))


if __name__ == "__main__":
    main()
