#!/usr/bin/env python3
"""Compares networks and ZeRO layouts: trains with each --network and each number of ranks per node.

    bench/network_experiment.py FOLDER [--launch "mpirun -n 16 ..."] [--networks efa socket] -- FLAGS OF mpzero train

--launch starts the ranks. The default is two ranks of this machine, which NCCL treats as two hosts. FLAGS must include
--deepspeed_config. Each row changes only zero_optimization.stage and zero_hpz_partition_size or mics_shard_size in this
file. A row that cannot run (e.g. without EFA, or with ranks that do not fill the nodes) contains mpzero's error
message. --deepspeed adds a row of stock DeepSpeed for each network and stage, with the same file and random tokens;
--meet is the rendezvous address on rank 0. --streams adds the output of bench/tcp_streams.py to the results.

Writes to FOLDER: a folder for each run with its log and metrics, table.md, results.json and, if matplotlib is
installed, steps.png and steps.svg. The table contains the median step time, the exposed communication, the bytes sent
per node and step, and the step time relative to the first successful row. Exits with status 1 if all rows failed.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from measures import medians, read_metrics, read_peers
from visit import TIMED_OUT, run_logged

PARTS = ("forward", "backward", "optimizer", "data", "exposed_gradients", "exposed_parameters")
# Flags that this program sets for each run.
OWN_FLAGS = ("max_steps", "checkpoint_freq", "save_final", "overwrite", "checkpoint_dir", "metrics_file", "network")
DEEPSPEED = "DeepSpeed"


@dataclass
class Row:
    """A run and its results. Times are in milliseconds."""

    network: str
    stage: int
    ranks_per_node: str  # "one level", "auto", a number, or "DeepSpeed"
    step: float | None = None
    parts: dict[str, float] | None = None  # mpzero only
    internode_megabytes: float | None = None
    over: str = ""  # network in use, according to mpzero's log
    nodes: int = 1  # number of shard groups, according to mpzero's log
    program: str = "mpzero"
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.network}-zero{self.stage}-{self.ranks_per_node.replace(' ', '_')}"

    def needs_nodes(self) -> bool:
        """Returns False for auto, because mpzero may choose one level."""
        return self.ranks_per_node not in ("one level", "auto", DEEPSPEED)

    def layout(self) -> str:
        """Returns the row's label in the table."""
        if self.program != "mpzero":
            return self.program
        if self.ranks_per_node != "auto" or self.step is None:
            return self.ranks_per_node
        return f"auto: {self.nodes} nodes" if self.nodes > 1 else "auto: one level"

    def zero(self) -> dict:
        if self.ranks_per_node == DEEPSPEED:
            return {}
        if self.ranks_per_node == "one level":
            return {"zero_hpz_partition_size": 1}
        size = self.ranks_per_node
        return {"mics_shard_size": size if size == "auto" else int(size)}


@dataclass(frozen=True)
class Settings:
    folder: Path
    config: dict  # content of ds_config.json
    flags: list[str]
    build: Path = Path("build")
    launch: str = ""
    steps: int = 20
    warm_up: int = 5
    limit: float = 600
    meet: str = "127.0.0.1:29417"
    deepspeed_flags: tuple[str, ...] = ()


def split_flags(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Returns the arguments before `--`, and mpzero's flags after it."""
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def take_flag(flags: list[str], name: str) -> str | None:
    """Removes --name VALUE or --name=VALUE from the flags, and returns the value."""
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


def command_of(launch: str, words: list[str]) -> list[str]:
    if launch:
        return [*shlex.split(launch), *words]
    command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for host in range(2):
        command += [":"] if host else []
        command += ["-n", "1", "env", f"NCCL_HOSTID=host{host}", *words]
    return command


def sentence_of(log: str) -> str:
    """Returns mpzero's or DeepSpeed's error message in a log."""
    errors = re.findall(r"^mpzero: error: (.*)$", log, re.MULTILINE) or re.findall(
        r"^(?:\w+\.)*\w*Error: .*$", log, re.MULTILINE
    )
    if errors:
        return errors[0]
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "the log is empty"


def words_of_mpzero(row: Row, own: Path, config: Path, settings: Settings) -> list[str]:
    words = [str(settings.build / "bin" / "mpzero"), "train", *settings.flags, f"--deepspeed_config={config}"]
    words += [f"--max_steps={settings.steps}", "--checkpoint_freq=0", "--save_final=false", "--overwrite"]
    words += [f"--checkpoint_dir={own / 'checkpoints'}", f"--metrics_file={own / 'metrics.jsonl'}"]
    return [*words, f"--network={row.network}"]


def words_of_deepspeed(row: Row, config: Path, settings: Settings) -> list[str]:
    # NCCL chooses the network unless the row requires sockets; its log reports the choice.
    environment = ["env", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT"]
    if row.network == "socket":
        environment.append("NCCL_NET=Socket")
    flags = list(settings.flags)
    words = [sys.executable, str(Path(__file__).with_name("deepspeed_peer.py").resolve())]
    words += [f"--deepspeed_config={config}", f"--meet={settings.meet}", f"--warm_up={settings.warm_up}"]
    words += [f"--steps={settings.steps - settings.warm_up}", *settings.deepspeed_flags]
    for name in ("model_type", "model_config", "seq_length"):
        value = take_flag(flags, name)
        if value is not None:
            words.append(f"--{name}={value}")
    return [*environment, *words]


def run(row: Row, settings: Settings) -> None:
    zero = {
        key: value
        for key, value in settings.config.get("zero_optimization", {}).items()
        if key not in ("zero_hpz_partition_size", "mics_shard_size")
    }
    zero |= {"stage": row.stage, **row.zero()}
    own = settings.folder / row.name
    own.mkdir(exist_ok=True)
    file = own / "ds_config.json"
    file.write_text(json.dumps({**settings.config, "zero_optimization": zero}, indent=1), encoding="utf-8")
    metrics, log = own / "metrics.jsonl", own / "log.txt"
    metrics.unlink(missing_ok=True)
    is_deepspeed = row.ranks_per_node == DEEPSPEED
    words = words_of_deepspeed(row, file, settings) if is_deepspeed else words_of_mpzero(row, own, file, settings)
    status = run_logged(command_of(settings.launch, words), log, settings.limit)
    if status == TIMED_OUT:
        row.error = f"timed out after {settings.limit:g} s"
    text = log.read_text(errors="replace", encoding="utf-8")
    found = re.search(r"Using network (\S+)" if is_deepspeed else r"^Network: (\S+)", text, re.MULTILINE)
    row.over = found[1].rstrip(":,;") if found else ""
    found = re.search(r" over (\d+) shard groups of \d+ rank", text)
    row.nodes = int(found[1]) if found else 1
    if status == 0 and row.needs_nodes() and row.nodes == 1:
        row.error = f"the run had one level with {row.ranks_per_node} ranks per node"
    elif status == 0:
        read_deepspeed(row, log) if is_deepspeed else read_mpzero(row, metrics, settings.warm_up)
    if row.step is None:
        row.error = row.error or sentence_of(text)


def read_mpzero(row: Row, metrics: Path, warm_up: int) -> None:
    found = medians(read_metrics(metrics) if metrics.exists() else [], warm_up=warm_up)
    if not found:
        return
    row.step = found["step_ms"]
    row.parts = {part: found.get(f"{part}_ms", 0) for part in PARTS}
    row.internode_megabytes = found.get("internode_megabytes", 0)


def read_deepspeed(row: Row, log: Path) -> None:
    for result in read_peers([log]):
        row.step, row.program = result["step_ms"], result["peer"]


def table(rows: list[Row]) -> str:
    first = next((row.step for row in rows if row.step), None)
    lines = [
        "| network | ZeRO | ranks per node | step | exposed: gradients / parameters | sent per node | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        network = row.network if row.over.lower() in ("", row.network) else f"{row.network} ({row.over})"
        begin = f"| {network} | {row.stage} | {row.layout()} |"
        if row.step is None:
            lines.append(f"{begin} not run: {row.error.replace('|', '/')} | | | |")
            continue
        exposed = (
            f"{row.parts['exposed_gradients']:.1f} / {row.parts['exposed_parameters']:.1f} ms" if row.parts else ""
        )
        sent = f"{row.internode_megabytes:.1f} MB" if row.internode_megabytes else ""
        lines.append(f"{begin} {row.step:.1f} ms | {exposed} | {sent} | {row.step / first:.2f} |")
    return "\n".join(lines) + "\n"


def streams_line(streams: dict) -> str:
    by_number = ", ".join(f"{number}: {rate:.2f}" for number, rate in streams["sent"].items())
    return (
        f"\nPlain TCP streams between the first two hosts, GB/s by number of streams: {by_number}; "
        f"round trip {streams['round_trip_us']:.0f} µs.\n"
    )


def plot(rows: list[Row], folder: Path) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        print("network_experiment.py: matplotlib is not installed; skipping the plot", file=sys.stderr)
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    ran = [row for row in rows if row.step]
    figure, axes = plt.subplots(figsize=(8, 1 + 0.45 * len(ran)), layout="constrained")
    left = [0.0] * len(ran)
    for part in PARTS:
        widths = [row.parts[part] if row.parts else 0.0 for row in ran]
        axes.barh([row.name for row in ran], widths, left=left, label=part.replace("_", " "))
        left = [a + b for a, b in zip(left, widths, strict=True)]
    if any(row.parts is None for row in ran):
        widths = [0.0 if row.parts else row.step or 0.0 for row in ran]
        axes.barh([row.name for row in ran], widths, label="step of DeepSpeed", color="lightgray")
    axes.invert_yaxis()
    axes.set_xlabel("ms per step (median)")
    axes.legend(fontsize="small")
    for kind in ("png", "svg"):
        figure.savefig(folder / f"steps.{kind}", dpi=120)
    plt.close(figure)


def write(rows: list[Row], folder: Path, streams: dict | None) -> str:
    """Writes results.json and table.md, and returns the table."""
    text = table(rows) + (streams_line(streams) if streams else "")
    results = {"rows": [asdict(each) for each in rows], **({"streams": streams} if streams else {})}
    (folder / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (folder / "table.md").write_text(text, encoding="utf-8")
    return text


def read_arguments(arguments: list[str]) -> tuple[Settings, list[Row], dict | None]:
    own, flags = split_flags(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--launch", default="", help="command that starts the ranks, without mpzero")
    parser.add_argument("--networks", nargs="+", default=["socket"], choices=["auto", "efa", "socket"])
    parser.add_argument("--stages", nargs="+", type=int, default=[2, 3], choices=[1, 2, 3])
    parser.add_argument(
        "--ranks_per_node",
        nargs="+",
        metavar="N|auto|'one level'",
        help="default: 'one level' and auto; without --launch: 'one level' and 1",
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm_up", type=int, default=5, help="steps to exclude from measurements")
    parser.add_argument("--limit", type=int, default=600, help="time limit of one run, in seconds")
    parser.add_argument("--deepspeed", action="store_true")
    parser.add_argument("--meet", default=Settings.meet, metavar="HOST:PORT")
    parser.add_argument("--streams", type=Path, metavar="FILE")
    args = parser.parse_args(own)
    if args.warm_up >= args.steps:
        parser.error("--warm_up must be less than --steps")
    # mpzero treats two ranks of one machine as one host, even if NCCL treats them as two hosts.
    sizes = args.ranks_per_node or ["one level", "auto" if args.launch else "1"]
    for size in sizes:
        if size not in ("one level", "auto") and not re.fullmatch("[1-9][0-9]*", size):
            parser.error(f"--ranks_per_node {size}: expected numbers, auto or 'one level'")
    file = take_flag(flags, "deepspeed_config")
    if file is None:
        parser.error("pass --deepspeed_config after --")
    for name in OWN_FLAGS:
        if any(word == f"--{name}" or word.startswith(f"--{name}=") for word in flags):
            parser.error(f"--{name} is not allowed after --, because each run sets this flag")
    if args.deepspeed and not any(re.match(r"--model_(type|config)\b", word) for word in flags):
        parser.error("--deepspeed requires --model_type or --model_config after --")
    args.folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        folder=args.folder.resolve(),
        config=json.loads(Path(file).read_text(encoding="utf-8")),
        flags=flags,
        build=args.build,
        launch=args.launch,
        steps=args.steps,
        warm_up=args.warm_up,
        limit=args.limit,
        meet=args.meet,
        deepspeed_flags=("--cpu",) if "--device=cpu" in flags or "--device cpu" in " ".join(flags) else (),
    )
    layouts = [*sizes, *([DEEPSPEED] if args.deepspeed else [])]
    rows = [Row(n, s, r) for n in args.networks for s in args.stages for r in layouts]
    streams = json.loads(args.streams.read_text(encoding="utf-8")) if args.streams and args.streams.exists() else None
    return settings, rows, streams


def main(arguments: list[str]) -> int:
    settings, rows, streams = read_arguments(arguments)
    text = ""
    for number, row in enumerate(rows, start=1):
        print(f"{number} of {len(rows)}: {row.name}", file=sys.stderr)
        run(row, settings)
        text = write(rows, settings.folder, streams)
    print(text, end="")
    if not any(row.step for row in rows):
        return 1
    plot(rows, settings.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
