#!/usr/bin/env python3
"""Measures what Prometheus' endpoint costs a training run.

    bench/watching_cost.py FOLDER --build build --train_data T.h5 [--rounds 5] [--runs 2] [--device cuda]

One run with an endpoint (--metrics_port) is watched for a while, left alone for a while, and so on: runs differ from
each other by more than what is measured. A round has a period of each kind, in random order:

    unwatched, unwatched_again   nobody asks; how they differ is the noise of the measurement
    scraped                      a scrape a second
    watched                      the same, and --idle connections that never ask; those that it closes are opened
                                 again before the next scrape
    client_alone                 the same connections and scrapes, answered by this program: what the client costs,
                                 which shares the machine here

FOLDER gets logs and metrics of each run. The last line is one JSON object: milliseconds of a step (median and mean over
all periods of a kind in a run: the median over the runs, the least and the greatest) and how each compares with the
unwatched ones of the same run. Exits with status 1 if a run fails, or if an endpoint answers no scrape.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from measures import MPI_AS_ROOT, read_metrics
from scraper import HOST, Client, StandIn
from visit import end

REPOSITORY = Path(__file__).resolve().parents[1]
OTHER_FILES = 200  # that this program has open besides the idle connections


@dataclass
class Side:
    """One kind of period."""

    name: str
    scrapes: bool = False
    idle: bool = False
    answered_here: bool = False  # by the stand-in
    medians: list[float] = field(default_factory=list)  # seconds, of each run
    means: list[float] = field(default_factory=list)
    scrape_seconds: list[float] = field(default_factory=list)
    most_idle: int = 0


def sides() -> list[Side]:
    return [
        Side("unwatched"),
        Side("unwatched_again"),
        Side("scraped", scrapes=True),
        Side("watched", scrapes=True, idle=True),
        Side("client_alone", scrapes=True, idle=True, answered_here=True),
    ]


@dataclass
class Period:
    """Seconds since 1970 in which a run was on a side."""

    side: Side
    begin: float
    end: float


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def config_of(arguments: argparse.Namespace) -> dict:
    """The user's file with micro-batches of one sequence."""
    config = json.loads(arguments.deepspeed_config.read_text(encoding="utf-8"))
    config.pop("train_batch_size", None)
    config |= {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    if arguments.without_offload:
        config.get("zero_optimization", {}).pop("offload_optimizer", None)
    return config


def command_of(arguments: argparse.Namespace, folder: Path, port: int) -> list[str]:
    (folder / "ds_config.json").write_text(json.dumps(config_of(arguments)), encoding="utf-8")
    model = {"model_config": arguments.model_config} if arguments.model_config else {"model_type": arguments.model_type}
    flags = {
        "deepspeed_config": folder / "ds_config.json",
        **model,
        "train_data": arguments.train_data,
        "seq_length": arguments.seq_length,
        "max_steps": 10_000_000,
        "checkpoint_dir": folder / "checkpoints",
        "checkpoint_freq": 0,
        "save_final": "false",
        "logging_freq": 1000,
        "metrics_file": folder / "metrics.jsonl",
        "device": arguments.device,
        "metrics_port": port,
    }
    mpirun = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "1"]
    return [*mpirun, str(arguments.build / "bin" / "mpzero"), "train", *(f"--{key}={flags[key]}" for key in flags)]


class Run:
    """A training run with an endpoint, until it is ended."""

    def __init__(self, folder: Path, arguments: argparse.Namespace):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.port = folder, free_port()
        self.metrics, self.log = folder / "metrics.jsonl", folder / "log.txt"
        with self.log.open("w", encoding="utf-8") as stream:
            self.process = subprocess.Popen(
                command_of(arguments, folder, self.port),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def check(self) -> None:
        if self.process.poll() is not None:
            sys.exit(
                f"{self.folder.name}: mpzero ended with status {self.process.returncode}; the end of {self.log}:\n"
                f"{self.log.read_text(encoding='utf-8')[-2000:]}"
            )

    def wait_for_steps(self, count: int) -> None:
        while not self.metrics.exists() or self.metrics.read_bytes().count(b"\n") < count:
            self.check()
            time.sleep(0.05)


def stay(run: Run, side: Side, arguments: argparse.Namespace) -> Period:
    """A period on one side."""
    stand_in = StandIn(free_port()) if side.answered_here else None
    port = stand_in.port if stand_in is not None else run.port
    if stand_in is not None:
        stand_in.start()
    client = Client(port, arguments.idle if side.idle else 0, arguments.scrape_seconds) if side.scrapes else None
    begin = time.time()
    if client is not None:
        client.start()
    time.sleep(arguments.period_seconds)
    period = Period(side, begin, time.time())
    if client is not None:
        client.stop()
        side.scrape_seconds += [took for _, took in client.scrapes]
        side.most_idle = max(side.most_idle, client.most_idle)
    if stand_in is not None:
        stand_in.stop()
    # What a client leaves behind is not counted in the next period.
    time.sleep(arguments.period_seconds / 10)
    run.check()
    return period


def steps_of(lines: list[dict], periods: list[Period], side: Side) -> list[float]:
    """Seconds of the steps that lie within a side's periods."""
    return [
        line["step_seconds"]
        for period in periods
        if period.side is side
        for line in lines
        if period.begin <= line["time"] - line["step_seconds"] and line["time"] <= period.end
    ]


def run_once(number: int, all_sides: list[Side], arguments: argparse.Namespace) -> None:
    """One run, whose steps are added to their sides."""
    run = Run(arguments.folder / f"run-{number}", arguments)
    order = random.Random(number)
    periods: list[Period] = []
    try:
        run.wait_for_steps(arguments.warm_up)
        for _ in range(arguments.rounds):
            periods += [stay(run, side, arguments) for side in order.sample(all_sides, len(all_sides))]
        run.check()
    finally:
        end(run.process)
    lines = read_metrics(run.metrics)
    for side in all_sides:
        seconds = steps_of(lines, periods, side)
        if not seconds:
            sys.exit(f"{run.folder.name}: no step lies within a period of {side.name}; raise --period_seconds")
        if side.scrapes and not side.scrape_seconds:
            sys.exit(f"{run.folder.name}: no scrape was answered; raise --period_seconds, or see {run.log}")
        side.medians.append(statistics.median(seconds))
        side.means.append(statistics.fmean(seconds))


def spread(values: list[float], digits: int) -> dict:
    """Over the runs."""
    return {
        "median": round(statistics.median(values), digits),
        "least": round(min(values), digits),
        "greatest": round(max(values), digits),
    }


def figures_of(sides: list[Side]) -> dict:
    """`sides`: the first is what the others are compared with, run by run."""
    first = sides[0]
    figures: dict = {}
    for side in sides:
        figures[side.name] = {
            "median_step_ms": spread([value * 1e3 for value in side.medians], 4),
            "mean_step_ms": spread([value * 1e3 for value in side.means], 4),
        }
        if side is not first:
            pairs = {"median": (side.medians, first.medians), "mean": (side.means, first.means)}
            figures[side.name]["ratio"] = {
                name: spread([one / other for one, other in zip(*both, strict=True)], 5) for name, both in pairs.items()
            }
        if side.scrape_seconds:
            figures[side.name]["scrapes"] = {
                "answered": len(side.scrape_seconds),
                "median_ms": round(statistics.median(side.scrape_seconds) * 1e3, 2),
                "longest_ms": round(max(side.scrape_seconds) * 1e3, 2),
            }
            figures[side.name]["idle_connections"] = side.most_idle
    return figures


def allow_connections(count: int) -> None:
    """Both ends of a connection are files of this program where it answers, too."""
    wanted = 2 * count + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        sys.exit(
            f"--idle {count} needs {wanted} open files, and this machine allows {hard}: lower it or raise ulimit -n"
        )
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build")
    parser.add_argument("--train_data", type=Path, required=True)
    parser.add_argument("--model_type", default="qwen3_0_6b")
    parser.add_argument("--model_config", type=Path, help="a config.json instead of --model_type")
    parser.add_argument("--deepspeed_config", type=Path, default=REPOSITORY / "configs" / "ds_config.json")
    parser.add_argument("--without_offload", action="store_true", help="leave offload_optimizer out of that file")
    parser.add_argument("--seq_length", type=int, default=512)
    parser.add_argument("--warm_up", type=int, default=50, help="steps that do not count (default: 50)")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="of periods in a run (default: 5)")
    parser.add_argument("--period_seconds", type=float, default=3.0)
    parser.add_argument("--idle", type=int, default=1000, help="connections that never ask (default: 1000)")
    parser.add_argument("--scrape_seconds", type=float, default=1.0, help="between two scrapes (default: 1)")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    allow_connections(arguments.idle)
    os.environ |= MPI_AS_ROOT
    all_sides = sides()
    for number in range(1, arguments.runs + 1):
        run_once(number, all_sides, arguments)
        for side in all_sides:
            print(
                f"run {number} {side.name}: median {side.medians[-1] * 1e3:.3f} ms, mean {side.means[-1] * 1e3:.3f} ms"
            )
    asked = (
        "model_type",
        "seq_length",
        "runs",
        "rounds",
        "period_seconds",
        "scrape_seconds",
        "device",
        "without_offload",
    )
    settings = {key: getattr(arguments, key) for key in asked}
    if arguments.model_config:
        settings["model_config"] = str(arguments.model_config)
        del settings["model_type"]
    print(json.dumps({"measure": "watching_cost", **settings, **figures_of(all_sides)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
