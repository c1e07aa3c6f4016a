#!/usr/bin/env python3
"""Compares networks and layouts of ZeRO: the same training over each --network and with each number of ranks a node.

    bench/network_experiment.py FOLDER [--launch "mpirun -n 16 ..."] [--networks efa socket] -- FLAGS OF mpzero train

`--launch` starts the ranks; the default is two ranks of this machine that NCCL takes for two hosts. FLAGS must have
--deepspeed_config: each row changes its zero_optimization.stage and zero_hpz_partition_size or mics_shard_size, and
nothing else. A row that cannot run (no EFA, ranks that do not fill the nodes) is a row with mpzero's sentence.

FOLDER gets a folder for each run with its log and metrics, table.md, results.json and, where matplotlib is installed,
steps.png: the median step with its exposed communication, what a node sends in a step, and each row's ratio to the
first row that ran. Exits with status 1 if no row ran.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from measures import read_metrics

PARTS = ("forward", "backward", "optimizer", "data", "exposed_gradients", "exposed_parameters")


@dataclass
class Row:
    """One run, and what came of it; times in milliseconds."""

    network: str
    stage: int
    ranks_per_node: str  # "one level", "auto" or a number
    step: float | None = None
    parts: dict[str, float] | None = None
    internode_megabytes: float | None = None
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.network}-zero{self.stage}-{self.ranks_per_node.replace(' ', '_')}"

    def zero(self) -> dict:
        if self.ranks_per_node == "one level":
            return {"zero_hpz_partition_size": 1}
        size = self.ranks_per_node
        return {"mics_shard_size": size if size == "auto" else int(size)}


def take_flag(flags: list[str], name: str) -> str | None:
    """Removes --name VALUE or --name=VALUE from the flags; returns the value."""
    for index, word in enumerate(flags):
        if word == f"--{name}":
            if index + 1 == len(flags):
                raise SystemExit(f"network_experiment.py: --{name} has no value")
            value = flags[index + 1]
            del flags[index : index + 2]
            return value
        if word.startswith(f"--{name}="):
            del flags[index]
            return word.split("=", 1)[1]
    return None


def command_of(launch: str, program: Path, words: list[str]) -> list[str]:
    if launch:
        return [*shlex.split(launch), str(program), "train", *words]
    command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for host in range(2):
        command += [":"] if host else []
        command += ["-n", "1", "env", f"NCCL_HOSTID=host{host}", str(program), "train", *words]
    return command


def sentence_of(log: str) -> str:
    """The program's own word on why it ended."""
    errors = re.findall(r"^mpzero: error: (.*)$", log, re.MULTILINE)
    if errors:
        return errors[0]
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def run(row: Row, folder: Path, args: argparse.Namespace, config: dict, flags: list[str]) -> None:
    zero = {
        key: value
        for key, value in config.get("zero_optimization", {}).items()
        if key not in ("zero_hpz_partition_size", "mics_shard_size")
    }
    own = folder / row.name
    own.mkdir(exist_ok=True)
    file = own / "ds_config.json"
    file.write_text(json.dumps({**config, "zero_optimization": {**zero, "stage": row.stage, **row.zero()}}, indent=1))
    metrics, log = own / "metrics.jsonl", own / "log.txt"
    metrics.unlink(missing_ok=True)
    words = [*flags, f"--deepspeed_config={file}", f"--max_steps={args.steps}", "--checkpoint_freq=0"]
    words += ["--save_final=false", "--overwrite", f"--checkpoint_dir={own / 'checkpoints'}"]
    words += [f"--metrics_file={metrics}", f"--network={row.network}"]
    with log.open("w") as output:
        try:
            status = subprocess.run(
                command_of(args.launch, args.build / "bin" / "mpzero", words),
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=args.limit,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status, row.error = None, f"not done after {args.limit} s"
    steps = read_metrics(metrics)[args.warm_up :] if metrics.exists() else []
    if status != 0 or not steps:
        row.error = row.error or sentence_of(log.read_text(errors="replace"))
        return
    median = {key: statistics.median(step.get(key, 0) for step in steps) for key in steps[-1] if key != "rank_seconds"}
    row.step = median["step_seconds"] * 1e3
    row.parts = {part: median.get(f"{part}_seconds", 0) * 1e3 for part in PARTS}
    row.internode_megabytes = median.get("internode_bytes", 0) / 1e6


def table(rows: list[Row]) -> str:
    first = next((row.step for row in rows if row.step), None)
    lines = [
        "| network | ZeRO | ranks a node | step | exposed: gradients / parameters | a node sends | to the first row |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        begin = f"| {row.network} | {row.stage} | {row.ranks_per_node} |"
        if row.step is None or row.parts is None:
            lines.append(f"{begin} not run: {row.error.replace('|', '/')} | | | |")
            continue
        exposed = f"{row.parts['exposed_gradients']:.1f} / {row.parts['exposed_parameters']:.1f} ms"
        sent = f"{row.internode_megabytes:.1f} MB" if row.internode_megabytes else ""
        lines.append(f"{begin} {row.step:.1f} ms | {exposed} | {sent} | {row.step / first:.2f} |")
    return "\n".join(lines) + "\n"


def plot(rows: list[Row], file: Path) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        print("network_experiment.py: matplotlib is not installed, so there is no plot", file=sys.stderr)
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    ran = [row for row in rows if row.parts]
    figure, axes = plt.subplots(figsize=(8, 1 + 0.45 * len(ran)), layout="constrained")
    left = [0.0] * len(ran)
    for part in PARTS:
        widths = [row.parts[part] for row in ran if row.parts]
        axes.barh([row.name for row in ran], widths, left=left, label=part.replace("_", " "))
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms a step (median)")
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main(arguments: list[str]) -> int:
    own, flags = arguments, []
    if "--" in arguments:
        own, flags = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--launch", default="", help="the command that starts the ranks, without mpzero")
    parser.add_argument("--networks", nargs="+", default=["socket"], choices=["auto", "efa", "socket"])
    parser.add_argument("--stages", nargs="+", type=int, default=[2, 3], choices=[1, 2, 3])
    parser.add_argument("--ranks_per_node", nargs="+", default=["one level", "auto"], metavar="N|auto|'one level'")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm_up", type=int, default=5, help="steps that do not count")
    parser.add_argument("--limit", type=int, default=600, help="seconds for one run")
    args = parser.parse_args(own)
    if args.warm_up >= args.steps:
        parser.error("--warm_up leaves no step to measure")
    for size in args.ranks_per_node:
        if size not in ("one level", "auto") and not re.fullmatch("[1-9][0-9]*", size):
            parser.error(f"--ranks_per_node {size}: give numbers, auto or 'one level'")
    file = take_flag(flags, "deepspeed_config")
    if file is None:
        parser.error("after -- there must be --deepspeed_config")
    config = json.loads(Path(file).read_text())
    args.folder.mkdir(parents=True, exist_ok=True)
    folder = args.folder.resolve()
    rows = [Row(n, s, r) for n in args.networks for s in args.stages for r in args.ranks_per_node]
    for number, row in enumerate(rows, start=1):
        print(f"{number} of {len(rows)}: {row.name}", file=sys.stderr)
        run(row, folder, args, config, flags)
        (folder / "results.json").write_text(json.dumps([asdict(each) for each in rows], indent=1))
        (folder / "table.md").write_text(table(rows))
    print(table(rows), end="")
    if not any(row.step for row in rows):
        return 1
    plot(rows, folder / "steps.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
