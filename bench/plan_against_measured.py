#!/usr/bin/env python3
"""Compares `mpzero plan` with the measured runs in bench/plan_measured.json.

bench/plan_against_measured.py [--program build/bin/mpzero] [--calibration FILE] [--output FILE.md] [--runs FILE …]

Prints a table for each session on a machine. Plans recorded before the runs are evaluated separately. --runs
reads output files of bench/plan_runs.py instead of bench/plan_measured.json. CPU runs use the calibration of their
session, or else the recorded plan. These keys are added by hand:

    session  "title"
             "calibrated": measurements of the host, if it is slower than the host of the shipped calibration
    run      "left_out": reason for the exclusion
             "has_chosen": constant of the plan that was later fitted to this run; only the recorded plan is evaluated

Needs no GPU. Exits with status 1 if fewer than 90% of a table's steps are within 10%, or not all are within 20%.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CALIBRATIONS = ROOT / "configs" / "calibrations"
MEASURED = ROOT / "bench" / "plan_measured.json"
DEFAULTS = json.loads(MEASURED.read_text(encoding="utf-8"))["defaults"]  # default values of run fields
CLOSE, FAR, MOST_CLOSE = 0.10, 0.20, 0.90
MEMORY_CLOSE = 0.01
GPUS = {"NVIDIA H200": "H200", "NVIDIA H100 80GB HBM3": "H100"}


def users_config(run: dict) -> dict:
    """Returns the ds_config.json in configs for the model, with the run's changes."""
    name = "ds_config_llama3_8b_zero3_offload" if run["model"] == "llama_3_8b" else "ds_config"
    config = json.loads((ROOT / "configs" / f"{name}.json").read_text(encoding="utf-8"))
    config["train_micro_batch_size_per_gpu"] = run["micro_batch"]
    config["gradient_accumulation_steps"] = run["accumulation"]
    if run["offload_ratio"] != 1:
        config["zero_optimization"]["offload_optimizer"]["ratio"] = run["offload_ratio"]
    return config


def ds_config(run: dict) -> dict:
    if run["name"].startswith("users_"):
        return users_config(run)
    zero: dict = {"stage": run["zero_stage"]}
    if run["offload_optimizer"]:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if run["offload_ratio"] != 1:
            zero["offload_optimizer"]["ratio"] = "auto"
    if run["offload_param"]:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    if run["nodes"] > 1:
        zero["mics_shard_size"] = 1 if run["layout"] == "two_levels" else run["gpus"]
    bf16: dict = {"enabled": run["dtype"] == "bf16"}
    if run["moments"] == "bf16":
        bf16["bf16_optimizer_states"] = True
    fp8 = run["fp8"]
    return {
        **({} if fp8 == "none" else {"fp8": {"enabled": True, "recipe": fp8}}),
        "train_micro_batch_size_per_gpu": run["micro_batch"],
        "gradient_accumulation_steps": run["accumulation"],
        "gradient_clipping": run["clipping"],
        "zero_optimization": zero,
        "bf16": bf16,
    }


def memory_of_rank(plan: dict) -> dict:
    """Returns the estimated memory of a GPU, or of a CPU rank, in bytes."""
    memory = plan["memory"]
    return memory["gpu_bytes"] if "gpu_bytes" in memory else memory["rank_bytes"]


def step_seconds(plan: dict) -> float:
    """Returns the estimated step time, with clipping if enabled: gradients of random tokens are always clipped."""
    return plan["step"]["clipped_seconds"] or plan["step"]["seconds"]


def is_on_cpu(run: dict) -> bool:
    return bool(run["ranks"])


def shipped_file(device: str) -> str:
    """Returns the file name of a device in configs/calibrations, or a new name for an unknown device."""
    for file in sorted(CALIBRATIONS.glob("*.json")):
        if json.loads(file.read_text(encoding="utf-8"))["device"] == device:
            return file.name
    return re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_") + ".json"


@contextlib.contextmanager
def shipped_with(calibrated: dict, device: str) -> Iterator[str]:
    """Yields a file with a GPU's shipped calibration, updated with values measured in the session."""
    shipped = json.loads((CALIBRATIONS / shipped_file(device)).read_text(encoding="utf-8"))
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump({**shipped, **calibrated}, file)
        file.flush()
        yield file.name


def plan(run: dict, program: Path, calibration: str | None) -> dict:
    """Returns the plan. `calibration`: None for the shipped file, updated with values measured on the run's host."""
    if calibration is None and run.get("calibrated"):
        with shipped_with(run["calibrated"], run["device"]) as file:
            return plan(run, program, file)
    if not is_on_cpu(run) and run["device"] not in GPUS:
        raise SystemExit(f"{run['name']}: {run['device']} is not one of {', '.join(GPUS)}")
    flags = [
        "--device=cpu" if is_on_cpu(run) else f"--gpu={GPUS[run['device']]}",
        f"--nodes={run['nodes']}",
        f"--nproc_per_node={run['ranks'] if is_on_cpu(run) else run['gpus'] // run['nodes']}",
        f"--model_config={ROOT / 'configs' / 'models' / run['model']}.json",
        f"--seq_length={run['length']}",
        f"--recompute={run['recompute']}",
    ]
    flags += [f"--{flag}={value}" for flag, value in run["model_flags"].items()]
    if run["vocab_size"]:
        flags.append(f"--vocab_size={run['vocab_size']}")
    if run["nodes"] > 1:
        flags += ["--network=socket", f"--network_rate={run['network_rate']}"]
    if is_on_cpu(run):
        calibration = str(ROOT / run["calibration"])
    if calibration:
        flags.append(f"--calibration={calibration}")
    result = run_plan(program, ds_config(run), flags)
    if result.returncode != 0:
        raise SystemExit(f"{run['name']}: {result.stderr or result.stdout}")
    return json.loads(result.stdout)


def run_plan(program: Path, config: dict, flags: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs `mpzero plan --json`. `config`: content of ds_config.json."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(config, file)
        file.flush()
        command = [str(program), "plan", "--json", f"--deepspeed_config={file.name}", *flags]
        return subprocess.run(command, capture_output=True, text=True, encoding="utf-8")


def gibibytes(value: float) -> str:
    """Formats a size with enough digits to resolve 1% of a small run."""
    return f"{value:.1f}" if value >= 1 else f"{value:.4f}"


def largest_of(errors: list[float]) -> str:
    """Formats the relative error with the largest absolute value."""
    largest = max(errors, key=abs)
    return f"{largest:+.1%}" if abs(largest) >= 0.0005 else "below 0.05%"


class Difference:
    """Relative errors of plans for step time and memory."""

    def __init__(self) -> None:
        self.of_steps: list[float] = []
        self.of_memory: list[float] = []

    def add(self, planned_ms: float, planned_gib: float, run: dict) -> float:
        self.of_steps.append(planned_ms / run["step_ms"] - 1)
        if run["memory_gib"]:
            self.of_memory.append(planned_gib / run["memory_gib"] - 1)
        return self.of_steps[-1]

    def good(self) -> bool:
        close = sum(abs(error) <= CLOSE for error in self.of_steps)
        return close >= MOST_CLOSE * len(self.of_steps) and all(abs(error) <= FAR for error in self.of_steps)

    def sentence(self, *, memory: bool = True) -> str:
        if not self.of_steps:
            return "no runs."
        close = sum(abs(error) <= CLOSE for error in self.of_steps)
        far = sum(abs(error) <= FAR for error in self.of_steps)
        text = (
            f"{close} of {len(self.of_steps)} within 10%, {far} within 20%, largest difference "
            f"{largest_of(self.of_steps)}."
        )
        if memory and self.of_memory:
            exact = sum(abs(error) <= MEMORY_CLOSE for error in self.of_memory)
            text += (
                f" Memory: {len(self.of_memory)} runs, {exact} within 1%, largest difference "
                f"{largest_of(self.of_memory)}."
            )
        return text


def rows_of(runs: list[dict], program: Path, calibration: str | None) -> tuple[list[str], Difference, list[str]]:
    """Returns the table's rows, the relative errors, and the excluded runs."""
    lines, difference, left_out = [], Difference(), []
    for run in runs:
        reason = run.get("left_out") or run.get("has_chosen")
        if reason:
            left_out.append(f"- {run['name']}: {reason}")
            continue
        planned, gib = run.get("plan_ms"), run.get("plan_gib")
        if not is_on_cpu(run) or run.get("calibration"):
            found = plan(run, program, calibration)
            if not found["step"]:
                left_out.append(f"- {run['name']}: only memory is estimated")
                continue
            planned = step_seconds(found) * 1e3
            bytes_of = memory_of_rank(found)
            gib = (bytes_of["total"] - bytes_of["context"]) / 2**30
        error = difference.add(planned, gib, run)
        memory = gibibytes(run["memory_gib"]) if run["memory_gib"] else ""
        before = f" ({run['plan_ms']:,.1f} before the run)" if run.get("plan_ms") else ""
        lines.append(
            f"| {run['name']} | {planned:,.1f} ms{before} | {run['step_ms']:,.1f} ms | {error:+.1%} | "
            f"{gibibytes(gib)} GiB | {memory} |"
        )
    return lines, difference, left_out


def runs_of(file: Path) -> list[dict]:
    """Returns the runs, each with the title and the host measurements of its session."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return [
        {
            **DEFAULTS,
            **run,
            "title": visit.get("title", file.name),
            "calibrated": visit.get("calibrated"),
        }
        for visit in found.get("visits", [found])
        for run in visit["runs"]
    ]


def said_before(runs: list[dict]) -> str | None:
    before, shipped = Difference(), Difference()
    for run in runs:
        if run.get("plan_ms") and not run.get("left_out"):
            before.add(run["plan_ms"], run["plan_gib"], run)
            if run.get("shipped_plan_ms"):
                shipped.add(run["shipped_plan_ms"], run["plan_gib"], run)
    if not before.of_steps:
        return None
    text = f"Predictions before the runs: {before.sentence()}"
    if shipped.of_steps:
        text += f" With the calibration shipped at the time: {shipped.sentence(memory=False)}"
    return text


def table(runs: list[dict], program: Path, calibration: str | None) -> tuple[list[str], bool]:
    head = [
        "| run | plan | measured | difference | memory, plan | measured |",
        "|---|---|---|---|---|---|",
    ]
    lines: list[str] = []
    left_out: list[str] = []
    good = True
    for title in dict.fromkeys(run.get("title", "") for run in runs):
        chosen = [run for run in runs if run.get("title", "") == title]
        found, difference, without = rows_of(chosen, program, calibration)
        left_out += [f"{line} ({title})" for line in without]
        good = good and difference.good()
        lines += [f"{title}:", "", *head, *found, "", difference.sentence()]
        if before := said_before(chosen):
            lines += ["", before]
        lines.append("")
    predicted = said_before([{**run, "shipped_plan_ms": None} for run in runs])
    lines += [f"All tables. {predicted}", ""] if predicted else []
    return [*lines, "Excluded runs:", "", *left_out], good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "bin" / "mpzero")
    parser.add_argument("--calibration")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--runs", type=Path, nargs="*", default=[MEASURED], help="output of bench/plan_runs.py")
    arguments = parser.parse_args()
    runs = [run for file in arguments.runs for run in runs_of(file)]
    lines, good = table(runs, arguments.program, arguments.calibration)
    text = "\n".join(lines) + "\n"
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
