"""Evaluates model configs, metrics files and logs of benchmark runs. Uses only the standard library."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PEAK_FLOPS = 989e12  # dense bf16 of H100 and H200
# Allows mpirun to run as root.
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

# Target tokens per second of a run on one GPU.
TARGETS = {
    "qwen3_0_6b_mb8": 111_000,
    "qwen3_0_6b_mb1": 70_000,
    "llama3_8b_zero3_4gpu_t8192": 11_000,
    "llama3_8b_zero3_4gpu_t512": 11_800,
}
# Target throughput relative to a peer in the same session. A peer may be an mpzero run.
SHARES = {
    ("qwen2_5_0_5b_mb8", "llmq"): 1.05,
    ("qwen2_5_0_5b_mb1", "llmq"): 1.05,
    ("qwen2_5_7b", "llmq"): 1.0,
    ("qwen3_zero2_4gpu_mb8", "qwen3_0_6b_mb8"): 0.95,
}


def read_model(name: str, vocab_size: int | None = None) -> dict:
    """Returns the config.json of a preset, optionally with a different vocabulary size."""
    config = json.loads((REPOSITORY / "configs" / "models" / f"{name}.json").read_text(encoding="utf-8"))
    return config if vocab_size is None else {**config, "vocab_size": vocab_size}


def flops_per_token(config: dict, seq_length: int, frozen: bool = False) -> float:
    """Returns the FLOPs of forward and backward, as counted by flops_per_token in model/architecture/config.hpp: 6 per
    matmul weight (including a tied head, excluding the input embedding), 4 per frozen weight, and the causal half of
    attention. Excludes LoRA adapters.
    """
    hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    layer = hidden * head_dim * (2 * heads + 2 * kv_heads) + 3 * hidden * config["intermediate_size"]
    weights = layers * layer + config["vocab_size"] * hidden
    return (4 if frozen else 6) * weights + 6 * layers * heads * head_dim * seq_length


def read_metrics(path: Path) -> list[dict]:
    """Returns the lines of a metrics file. Drops an incomplete last line."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines


def medians(lines: list[dict], *, warm_up: int) -> dict:
    """Returns medians after the first `warm_up` steps: the step and its parts in ms, bytes between nodes in MB."""
    timed = lines[warm_up:]
    if not timed:
        return {}
    result: dict = {
        "measured_steps": len(timed),
        "step_ms": round(statistics.median(line["step_seconds"] for line in timed) * 1e3, 2),
    }
    for name in timed[0]:
        if name.endswith("_seconds") and name not in ("step_seconds", "rank_seconds"):
            part = statistics.median(line[name] for line in timed if name in line)
            result[name.replace("_seconds", "_ms")] = round(part * 1e3, 3)
    if "exposed_communication_ms" in result:
        result["exposed_percent"] = round(result["exposed_communication_ms"] / result["step_ms"] * 100, 2)
    if "internode_bytes" in timed[0]:
        result["internode_megabytes"] = round(statistics.median(line["internode_bytes"] for line in timed) / 1e6, 3)
    return result


def summarize(lines: list[dict], *, ranks: int, warm_up: int, flops: float) -> dict:
    """Returns medians after the first `warm_up` steps, and maxima of memory. `flops`: per token."""
    result = medians(lines, warm_up=warm_up)
    if result:
        seconds = statistics.median(line["step_seconds"] for line in lines[warm_up:])
        tokens = lines[-1]["tokens"] / lines[-1]["step"] / ranks
        result["tokens_per_second_per_gpu"] = round(tokens / seconds)
        result["mfu_percent"] = round(tokens / seconds * flops / PEAK_FLOPS * 100, 1)
    if lines:
        for name in {name for line in lines for name in line if name.startswith("peak_") and name.endswith("_bytes")}:
            most = max(line.get(name, 0) for line in lines)
            result[name.replace("_bytes", "_gib")] = round(most / 2**30, 2)
    result["losses"] = [line["loss"] for line in lines]
    result["validation_losses"] = [line["validation_loss"] for line in lines if "validation_loss" in line]
    return result


def planned_memory(log: str) -> dict:
    """Parses `Peak memory: planned X GiB, measured Y GiB …` in a log, and computes the error of the plan."""
    found = re.search(r"Peak memory: planned ([\d.]+) GiB, measured ([\d.]+) GiB(.*)", log)
    if found is None:
        return {}
    planned, measured = float(found[1]), float(found[2])
    result = {"planned_gib": planned, "measured_gib": measured, "memory_line": found[0]}
    if measured > 0:
        result["plan_off_percent"] = round((planned / measured - 1) * 100, 1)
    return result


def compare_losses(one: list[float], other: list[float], tolerance: float) -> dict:
    """Returns the largest difference between two runs' losses, relative to the first run."""
    pairs = list(zip(one, other, strict=False))
    apart = max((abs(a - b) / abs(a) for a, b in pairs), default=float("nan"))
    return {
        "steps": len(pairs),
        "largest_relative_difference": apart,
        "tolerance": tolerance,
        "agree": apart <= tolerance,
    }


def read_peers(paths: Iterable[Path]) -> list[dict]:
    """Returns the JSON lines with "peer", "work" and "tokens_per_second_per_gpu" in the peers' output."""
    peers = []
    for path in paths:
        for line in path.read_text(errors="replace", encoding="utf-8").splitlines():
            if not line.startswith("{"):
                continue
            try:
                peer = json.loads(line)
            except json.JSONDecodeError:
                continue
            if {"peer", "work", "tokens_per_second_per_gpu"} <= peer.keys():
                peers.append(peer)
    return peers


def ratio_table(results: dict[str, dict], peers: list[dict]) -> list[str]:
    """Returns a Markdown table of the speed runs, their targets and the peers of the same session.

    `results`: by run name (speed_WORK or users_…). Peers are matched to runs by workload name.
    """
    table = [
        "| workload | tok/s/GPU | MFU | exposed | first step | target | peer | peer tok/s/GPU | ratio | target ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    speeds = {
        name.removeprefix("speed_"): result
        for name, result in results.items()
        if name.startswith(("speed_", "users_")) and "tokens_per_second_per_gpu" in result
    }
    for work, result in speeds.items():
        speed = result["tokens_per_second_per_gpu"]
        compared = [(p["peer"], p["tokens_per_second_per_gpu"]) for p in peers if p["work"] == work]
        compared += [
            (other, speeds[other]["tokens_per_second_per_gpu"])
            for one, other in SHARES
            if one == work and other in speeds
        ]
        target = TARGETS.get(work)
        reached = "" if target is None else f"{target:,} ({'reached' if speed >= target else 'missed'})"
        for peer, theirs in compared or [("", 0)]:
            share = SHARES.get((work, peer))
            cells = [
                work,
                f"{speed:,}",
                f"{result['mfu_percent']}%",
                f"{result['exposed_percent']}%" if "exposed_percent" in result else "",
                f"{result['first_step_seconds']} s" if "first_step_seconds" in result else "",
                reached,
                peer,
                f"{theirs:,}" if theirs else "",
                f"{speed / theirs:.3f}" if theirs else "",
                f"{share} ({'reached' if speed >= share * theirs else 'missed'})" if share and theirs else "",
            ]
            table.append("| " + " | ".join(cells) + " |")
    return table
