#!/usr/bin/env python3
"""What `mpzero plan` says of the runs in bench/plan_measured.json, beside what they took.

bench/plan_against_measured.py [--program build/bin/mpzero] [--calibration FILE] [--output FILE.md]

A run that the plan cannot describe is listed with the reason and not counted. Needs no GPU. The exit status is 1 where
fewer than 90% of the counted steps are within 10%, or one is beyond 20%.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLOSE, FAR, MOST_CLOSE = 0.10, 0.20, 0.90
GPUS = {"NVIDIA H200": "H200", "NVIDIA H100 80GB HBM3": "H100"}
# Gb/s that make the plan's TCP as fast as the sockets of that machine: more connections, and NCCL's own two. Chosen by
# the first row of each, which says nothing about the model; the others do.
TCP_GIGABITS = {"tcp": 110, "tcp_default": 42}
CONTEXT_GIB = 3.0  # what the plan counts for CUDA and NCCL, and measured tensors do not


def reason_to_leave_out(run: dict) -> str | None:
    if run["device"] not in GPUS:
        return "not on a GPU"
    if run["name"].startswith("roofline_"):
        return "one process without the engine; the calibration is from it"
    if run["deterministic"]:
        return "deterministic kernels are not calibrated"
    if run["name"].endswith("_clipped"):
        return "the plan assumes that steps are not clipped"
    if run["name"].endswith("params_on_host"):
        return "parameters stay on GPUs with room for them"
    if "earlier commit" in run["note"] or run["note"].startswith("before"):
        return "of an earlier engine"
    return None


def ds_config(run: dict) -> dict:
    zero: dict = {"stage": run["zero_stage"]}
    if run["offload_optimizer"]:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if run["offload_ratio"] != 1:
            zero["offload_optimizer"]["ratio"] = "auto"
    if run["offload_param"]:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if run["nodes"] > 1:
        zero["mics_shard_size"] = 1 if run["layout"] == "two_levels" else run["gpus"]
    if run["name"].startswith("users_llama3"):
        users = json.loads((ROOT / "configs/ds_config_llama3_8b_zero3_offload.json").read_text())["zero_optimization"]
        zero |= {key: value for key, value in users.items() if key.startswith("stage3_max")}
    bf16: dict = {"enabled": True}
    if run["moments"] == "bf16":
        bf16["bf16_optimizer_states"] = True
    return {
        "train_micro_batch_size_per_gpu": run["micro_batch"],
        "gradient_accumulation_steps": run["accumulation"],
        "gradient_clipping": run["clipping"],
        "zero_optimization": zero,
        "bf16": bf16,
    }


def plan(run: dict, program: Path, calibration: str | None) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(ds_config(run), file)
        file.flush()
        command = [
            str(program),
            "plan",
            "--json",
            f"--gpu={GPUS[run['device']]}",
            f"--nodes={run['nodes']}",
            f"--nproc_per_node={run['gpus'] // run['nodes']}",
            f"--model_config={ROOT / 'configs' / 'models' / run['model']}.json",
            f"--seq_length={run['length']}",
            f"--recompute={run['recompute']}",
            f"--deepspeed_config={file.name}",
        ]
        if run["vocab_size"]:
            command.append(f"--vocab_size={run['vocab_size']}")
        if run["nodes"] > 1:
            command += ["--network=socket", f"--host_gigabits={TCP_GIGABITS[run['network']]}"]
        if calibration:
            command.append(f"--calibration={calibration}")
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise SystemExit(f"{run['name']}: {result.stderr or result.stdout}")
        return json.loads(result.stdout)


def table(runs: list[dict], program: Path, calibration: str | None) -> tuple[list[str], bool]:
    lines = [
        "| run | plan | measured | difference | memory, plan | measured |",
        "|---|---|---|---|---|---|",
    ]
    left_out, errors, memory_errors = [], [], []
    for run in runs:
        reason = reason_to_leave_out(run)
        if reason:
            left_out.append(f"- {run['name']}: {reason}")
            continue
        found = plan(run, program, calibration)
        planned = found["step"]["seconds"] * 1e3
        error = planned / run["step_ms"] - 1
        errors.append(error)
        bytes_of = found["memory"]["gpu_bytes"]
        gib = (bytes_of["total"] - bytes_of["context"]) / 2**30
        if run["memory_gib"]:
            memory_errors.append(gib / run["memory_gib"] - 1)
        lines.append(
            f"| {run['name']} | {planned:,.1f} ms | {run['step_ms']:,.1f} ms | {error:+.1%} | {gib:.1f} GiB | "
            f"{run['memory_gib'] or ''} |"
        )
    close = sum(abs(error) <= CLOSE for error in errors)
    lines += [
        "",
        f"{len(errors)} runs: {close} within 10%, {sum(abs(error) <= FAR for error in errors)} within 20%, the largest "
        f"difference {max(errors, key=abs):+.1%}. Memory: {len(memory_errors)} runs, the largest difference "
        f"{max(memory_errors, key=abs):+.1%}.",
        "",
        "Left out:",
        "",
        *left_out,
    ]
    return lines, close >= MOST_CLOSE * len(errors) and all(abs(error) <= FAR for error in errors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "bin" / "mpzero")
    parser.add_argument("--calibration")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    runs = json.loads((ROOT / "bench" / "plan_measured.json").read_text())["runs"]
    lines, good = table(runs, arguments.program, arguments.calibration)
    text = "\n".join(lines) + "\n"
    if arguments.output:
        arguments.output.write_text(text)
    print(text, end="")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
