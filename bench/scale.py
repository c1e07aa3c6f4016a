#!/usr/bin/env python3
"""Prints and plots the throughput that `mpzero plan` predicts for different numbers of GPUs, and the optimal interval
between checkpoints.

bench/scale.py [--program build/bin/mpzero] [--instance p5.48xlarge] [--figure scale.png]

Model: Llama-3-8B, 8,192 tokens, micro-batch 1, no gradient accumulation, so the work per GPU is constant.
Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from plan_against_measured import ROOT, run_plan

NODES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
GPUS_PER_NODE = 8
# Columns: name, ZeRO stage, two levels, network.
LAYOUTS = [
    ("ZeRO-2, one level, EFA", 2, False, "efa"),
    ("ZeRO-2, two levels, EFA", 2, True, "efa"),
    ("ZeRO-3, one level, EFA", 3, False, "efa"),
    ("ZeRO-3, two levels, EFA", 3, True, "efa"),
    ("ZeRO-2, one level, TCP", 2, False, "socket"),
    ("ZeRO-2, two levels, TCP", 2, True, "socket"),
    ("ZeRO-3, one level, TCP", 3, False, "socket"),
    ("ZeRO-3, two levels, TCP", 3, True, "socket"),
]
# Mean hours between failures of a node. First: 419 unexpected interruptions in 54 days on 16,384 GPUs ("The Llama 3
# Herd of Models", 2024, section 3.3.4). Second: a cluster with six times as many failures.
NODE_HOURS_BETWEEN_FAILURES = (54 * 24 * 16384 / GPUS_PER_NODE / 419, 1000.0)
CHECKPOINT_BYTES = 12 * 8_030_261_248
# Assumption: total write and read rate of a shared file system.
FILE_SYSTEM_RATE = 50e9
# Measured (bench/RESULTS.md): write and read rates of one node, and the pause to copy states.
NODE_WRITES, NODE_READS = 2.5e9, 4.06e9
STANDSTILL_SECONDS = 0.11
# Measured: time to detect an unresponsive rank, and startup time of the 8B model on four GPUs.
DETECTION_SECONDS, START_SECONDS = 12.5, 11.2
# Assumption: time until Slurm restarts the requeued job.
REQUEUE_SECONDS = 120.0
PAYS = 0.9  # fraction of the best layout's throughput on the same network


def plan(program: Path, instance: str, nodes: int, stage: int, two_levels: bool, network: str) -> dict | None:
    """Returns the plan, or None if the run does not fit."""
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
    flags = [f"--instance={instance}", f"--nodes={nodes}", "--seq_length=8192", f"--network={network}"]
    model = ROOT / "configs/models/llama_3_8b.json"
    result = run_plan(program, config, [*flags, f"--model_config={model}"])
    # A run that does not fit still has a plan; only a missing plan is an error.
    if not result.stdout.startswith("{"):
        raise SystemExit(f"{' '.join(result.args)}: {result.stderr.strip()}")
    found = json.loads(result.stdout)
    if found["memory"]["fits"] and not found["step"]:
        raise SystemExit(f"{instance}: only memory is estimated: {result.stderr.strip()}")
    if found["machine"]["gpus_per_node"] != GPUS_PER_NODE:
        raise SystemExit(f"--instance {instance}: pass an instance type with {GPUS_PER_NODE} GPUs")
    return found if found["step"] else None


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


def where_it_stops(curves: dict[str, list[float | None]]) -> list[str]:
    """Finds for each layout the largest number of GPUs with at least PAYS of the network's best throughput."""
    lines = ["| layout | competitive up to | throughput relative to one node |", "|---|---|---|"]
    for name, values in curves.items():
        network = name.split(", ")[-1]
        of_network = [curve for other, curve in curves.items() if other.endswith(network)]
        best = [max(curve[place] or 0 for curve in of_network) for place in range(len(NODES))]
        last = 0
        while last + 1 < len(NODES) and (values[last + 1] or 0) >= PAYS * best[last + 1]:
            last += 1
        shown = f"{NODES[last] * GPUS_PER_NODE:,} GPUs" + (" or more" if last + 1 == len(NODES) else "")
        share = f"{(values[last] or 0) / values[0]:.0%}" if values[0] else ""
        lines.append(f"| {name} | {shown} | {share} |")
    return lines


def save_seconds(nodes: int) -> float:
    return CHECKPOINT_BYTES / min(FILE_SYSTEM_RATE, NODE_WRITES * nodes)


def restart_seconds(nodes: int) -> float:
    """Returns the time from a failure to the next step, excluding repeated steps."""
    reading = CHECKPOINT_BYTES / min(FILE_SYSTEM_RATE, NODE_READS * nodes)
    return DETECTION_SECONDS + REQUEUE_SECONDS + START_SECONDS + reading


def young(cost: float, between_failures: float) -> float:
    """Returns the optimal interval between saves that each take `cost` (Young 1974)."""
    return math.sqrt(2 * cost * between_failures)


def daly(cost: float, between_failures: float) -> float:
    """Returns the optimal interval between saves.

    Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", equation 37.
    """
    if cost >= 2 * between_failures:
        return between_failures
    share = cost / (2 * between_failures)
    return young(cost, between_failures) * (1 + math.sqrt(share) / 3 + share / 9) - cost


def lost(cost: float, interval: float, save: float, restart: float, between_failures: float) -> float:
    """Returns the fraction of lost time: saves and, per failure, half an interval, a save in progress and a restart."""
    return cost / (interval + cost) + (interval / 2 + save + restart) / between_failures


def failure_table(hours: float) -> list[str]:
    lines = [
        "| GPUs | MTBF | save | restart | interval of synchronous saves: Young | Daly | lost | "
        "interval of asynchronous saves: Daly | lost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for nodes in NODES:
        between = hours * 3600 / nodes
        save, restart = save_seconds(nodes), restart_seconds(nodes)
        still = daly(save, between)
        # The next save begins after the previous save has been written.
        background = max(daly(STANDSTILL_SECONDS, between), save)
        cells = [
            f"{nodes * GPUS_PER_NODE:,}",
            f"{between / 3600:,.1f} h",
            f"{save:.1f} s",
            f"{restart:.0f} s",
            f"{young(save, between) / 60:.1f} min",
            f"{still / 60:.1f} min",
            f"{lost(save, still, 0, restart, between):.2%}",
            f"{background / 60:.1f} min",
            f"{lost(STANDSTILL_SECONDS, background, save, restart, between):.2%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
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
    axes.set_ylabel("tokens/s/GPU, predicted")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)
    axes.set_title("Llama-3-8B, 8,192 tokens, micro-batch 1: predicted, not measured", fontsize=10)
    figure.tight_layout()
    figure.savefig(arguments.figure, dpi=110)
    lines = [*speed_table(curves), "", *where_it_stops(curves)]
    for hours in NODE_HOURS_BETWEEN_FAILURES:
        lines += ["", f"{hours:,.0f} hours between failures per node:", "", *failure_table(hours)]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
