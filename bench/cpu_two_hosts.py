#!/usr/bin/env python3
"""Training on the CPU of two hosts of this machine, beside one rank alone: in turns, a core and a thread for each rank.

    bench/cpu_two_hosts.py FOLDER [--rounds 3] [--steps 6] [--model qwen3_0_6b] [--build build ...]

The hosts are network namespaces (bench/two_namespaces.py) whose link has no limit; MPI's TCP connects them. Each rank
is bound to a core of its own, so that what moves its tensors, and TCP itself, share that core with what computes. Needs
root, Linux and two cores; no GPU. A round runs one rank alone with the last build, then two hosts with each build.

Prints a JSON line for each run and, at the end, for each kind of run the medians over all of its steps after the
warm-up, with the CPU seconds of a rank, start included. FOLDER/cpu_two_hosts.json has the same.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from measures import MPI_AS_ROOT, REPOSITORY, medians, read_metrics, read_model
from two_namespaces import Hosts, Link, reason_to_skip, two_hosts

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 5e-5, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "zero_optimization": {"stage": 2},
}


@dataclass
class Side:
    """One kind of run, and the steps of all of its runs."""

    name: str
    build: Path
    ranks: int
    steps: list[dict] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)


def sides_of(builds: list[Path]) -> list[Side]:
    together = [Side(f"two hosts, {build}", build.resolve(), 2) for build in builds]
    return [Side("alone", builds[-1].resolve(), 1), *together]


def rank_command(side: Side, folder: Path, arguments: argparse.Namespace) -> str:
    """For bash: a rank on the core of its number, and the CPU seconds that it took."""
    flags = {
        "model_type": arguments.model,
        "deepspeed_config": arguments.folder / "ds_config.json",
        "train_data": arguments.folder / "tokens.h5",
        "seq_length": arguments.seq_length,
        "max_steps": arguments.warm_up + arguments.steps,
        "checkpoint_freq": 0,
        "checkpoint_dir": folder / "checkpoints",
        "resume_from_checkpoint": "none",
        "save_final": "false",
        "validation_freq": 0,
        "metrics_file": folder / "metrics.jsonl",
        "device": "cpu",
    }
    program = [str(side.build / "bin" / "mpzero"), "train", *(f"--{name}={value}" for name, value in flags.items())]
    return f"TIMEFORMAT='cpu seconds %U %S'; time taskset -c $OMPI_COMM_WORLD_RANK {shlex.join(program)}"


def cpu_seconds(log: str) -> float:
    """Of a rank, the mean over the ranks."""
    ranks = [float(user) + float(system) for user, system in re.findall(r"cpu seconds ([\d.]+) ([\d.]+)", log)]
    return statistics.mean(ranks)


def run(side: Side, number: int, hosts: Hosts, arguments: argparse.Namespace) -> dict:
    folder = arguments.folder / f"{re.sub(r'[^a-z0-9]+', '_', side.name.lower())}_{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").unlink(missing_ok=True)
    start = (
        hosts.mpirun(folder / "agent")
        if side.ranks == 2
        else hosts.inside(0, ["mpirun", "--bind-to", "none", "-n", "1"])
    )
    environment = {**os.environ, **MPI_AS_ROOT}
    done = subprocess.run(
        [*start, "bash", "-c", rank_command(side, folder, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        timeout=arguments.limit,
        encoding="utf-8",
    )
    log = done.stdout + done.stderr
    (folder / "mpzero.log").write_text(log, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"{side.name}: mpzero ended with status {done.returncode}; see {folder / 'mpzero.log'}")
    lines = read_metrics(folder / "metrics.jsonl")
    side.steps += lines[arguments.warm_up :]
    side.cpu_seconds.append(cpu_seconds(log))
    found = medians(lines, warm_up=arguments.warm_up)
    return {"run": side.name, "round": number, "cpu_seconds": round(side.cpu_seconds[-1], 1), **found}


def summary(sides: list[Side]) -> list[dict]:
    """The medians of each side; with two ranks also the share of the lone rank's speed that each of them has."""
    found = []
    for side in sides:
        line = {"side": side.name, "cpu_seconds": round(statistics.median(side.cpu_seconds), 1)}
        line |= medians(side.steps, warm_up=0)
        if side.ranks == 2:
            line["percent_of_alone"] = round(found[0]["step_ms"] / line["step_ms"] * 100, 1)
        found.append(line)
    return found


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, nargs="+", default=[REPOSITORY / "build"])
    parser.add_argument("--model", default="qwen3_0_6b")
    parser.add_argument("--seq_length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm_up", type=int, default=2)
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run")
    arguments = parser.parse_args(words)
    if reason := reason_to_skip():
        print(f"cpu_two_hosts.py: {reason}", file=sys.stderr)
        return 2
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "ds_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    vocabulary = read_model(arguments.model)["vocab_size"]
    count = (arguments.warm_up + arguments.steps) * 2 * arguments.seq_length + 1
    maker = [sys.executable, str(REPOSITORY / "bench" / "random_tokens.py"), str(arguments.folder / "tokens.h5")]
    subprocess.run([*maker, "--vocab_size", str(vocabulary), "--tokens", str(count)], check=True)
    lines: list[dict] = []

    def report(line: dict) -> None:
        lines.append(line)
        print(json.dumps(line), flush=True)
        (arguments.folder / "cpu_two_hosts.json").write_text(json.dumps(lines, indent=2) + "\n", encoding="utf-8")

    sides = sides_of(arguments.build)
    with two_hosts(Link()) as hosts:
        for number in range(1, arguments.rounds + 1):
            for side in sides:
                report(run(side, number, hosts, arguments))
    for line in summary(sides):
        report(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
