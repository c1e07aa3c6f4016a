#!/usr/bin/env python3
"""Trains with and without compression between nodes, and draws the losses beside those of the exact run.

    bench/compression_curves.py FOLDER [--rows exact int8 ...] [--launch "mpirun -n 2 ..."] -- FLAGS OF mpzero train

Each row is the same training with other keys of zero_optimization: exact, int8_gradients, int8_weights, int8 (both),
int4_gradients, int4 (4-bit gradients, int8 weights). One more, fp32, compresses nothing and sends gradients in fp32:
its distance from the exact run is what any other rounding does to the losses. FLAGS must have --deepspeed_config.
`--launch` starts the ranks; the default is two ranks of this machine that NCCL takes for two hosts, with a node each.

A row that FOLDER has from an earlier call is not run again without --again, so that rows can be run one at a time and
on several days. FOLDER gets a folder for each row with its log and metrics, table.md, results.json and curves.svg: the
losses, means over --window steps, and their differences to the exact run. Exits with status 1 if a row failed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from measures import read_metrics
from network_experiment import command_of, sentence_of, split_flags, take_flag

KEYS = {
    "exact": {},
    "fp32": {},
    "int8_gradients": {"zero_quantized_gradients": True},
    "int8_weights": {"zero_quantized_weights": True},
    "int8": {"zero_quantized_gradients": True, "zero_quantized_weights": True},
    "int4_gradients": {"zero_quantized_gradients": True},
    "int4": {"zero_quantized_gradients": True, "zero_quantized_weights": True},
}
LABELS = {
    "exact": "exact",
    "fp32": "exact, gradients in fp32",
    "int8_gradients": "int8 gradients",
    "int8_weights": "int8 weights",
    "int8": "int8 gradients and weights",
    "int4_gradients": "4-bit gradients",
    "int4": "4-bit gradients, int8 weights",
}


def run(name: str, folder: Path, args: argparse.Namespace, config: dict, flags: list[str]) -> str:
    """Trains one row. Returns why it failed; empty: it did not."""
    own = folder / name
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    zero = {key: value for key, value in config.get("zero_optimization", {}).items() if "quantized" not in key}
    if not any(key in zero for key in ("mics_shard_size", "zero_hpz_partition_size")):
        zero["mics_shard_size"] = args.ranks_per_node
    file, metrics, log = own / "ds_config.json", own / "metrics.jsonl", own / "log.txt"
    changed = {**config, "zero_optimization": {**zero, **KEYS[name]}}
    if name == "fp32":
        changed["communication_data_type"] = "fp32"
    file.write_text(json.dumps(changed, indent=1))
    words = [*flags, f"--deepspeed_config={file}", f"--max_steps={args.steps}", "--checkpoint_freq=0"]
    words += ["--save_final=false", f"--checkpoint_dir={own / 'checkpoints'}", f"--metrics_file={metrics}"]
    if name.startswith("int4"):
        words.append("--quantized_gradient_bits=4")
    program = [str(args.build / "bin" / "mpzero"), "train"]
    with log.open("w") as output:
        process = subprocess.Popen(command_of(args.launch, program + words), stdout=output, stderr=subprocess.STDOUT)
        try:
            status = process.wait(timeout=args.limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return f"not done after {args.limit} s"
    return "" if status == 0 else sentence_of(log.read_text(errors="replace"))


def means(values: list[float], window: int) -> list[float]:
    """Of each full window, which do not overlap."""
    return [statistics.fmean(values[i : i + window]) for i in range(0, len(values) - window + 1, window)]


def result(steps: list[dict], exact: list[dict], window: int) -> dict:
    """What the table says of a row: its loss at the end, how far it is from the exact run, bytes and time."""
    losses = [step["loss"] for step in steps]
    common = min(len(losses), len(exact))
    ours, theirs = means(losses[:common], window), means([step["loss"] for step in exact][:common], window)
    difference = [a - b for a, b in zip(ours, theirs, strict=True)]
    validation = [step["validation_loss"] for step in steps if step.get("validation_loss") is not None]
    return {
        "steps": len(steps),
        "last_loss": statistics.fmean(losses[-window:]),
        "difference_at_end": difference[-1] if difference else None,
        "largest_difference": max(difference, key=abs) if difference else None,
        "validation_loss": validation[-1] if validation else None,
        "internode_megabytes": statistics.median(step.get("internode_bytes", 0) for step in steps) / 1e6,
        "step_ms": statistics.median(step["step_seconds"] for step in steps) * 1e3,
    }


def table(results: dict[str, dict]) -> str:
    lines = [
        "| between nodes | last loss | to the exact run | largest difference | validation | a node sends | step |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in results.items():
        if "error" in row:
            lines.append(f"| {LABELS[name]} | failed: {row['error'].replace('|', '/')} | | | | | |")
            continue

        def show(key: str, text: str, row: dict = row) -> str:
            return "" if row[key] is None else text.format(row[key])

        lines.append(
            f"| {LABELS[name]} | {row['last_loss']:.4f} | {show('difference_at_end', '{:+.4f}')} "
            f"| {show('largest_difference', '{:+.4f}')} | {show('validation_loss', '{:.4f}')} "
            f"| {row['internode_megabytes']:.3g} MB | {row['step_ms']:.0f} ms |"
        )
    return "\n".join(lines) + "\n"


def plot(rows: dict[str, list[dict]], window: int, file: Path, title: str) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        print("compression_curves.py: matplotlib is not installed, so there is no plot", file=sys.stderr)
        return
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "mpzero"
    from matplotlib import pyplot as plt

    curves = {name: means([step["loss"] for step in steps], window) for name, steps in rows.items()}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for name, curve in curves.items():
        x = [(i + 0.5) * window for i in range(len(curve))]
        left.plot(x, curve, label=LABELS[name], linewidth=1)
        if name != "exact" and "exact" in curves:
            pairs = list(zip(curve, curves["exact"], strict=False))
            right.plot(x[: len(pairs)], [a - b for a, b in pairs], color=left.lines[-1].get_color(), linewidth=1)
    right.axhline(0, color="black", linewidth=0.5)
    left.set_xlabel("step")
    right.set_xlabel("step")
    left.set_ylabel(f"loss, mean of {window} steps")
    right.set_ylabel("difference to the exact run")
    left.legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)


def main(arguments: list[str]) -> int:
    own, flags = split_flags(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--launch", default="", help="the command that starts the ranks, without mpzero")
    parser.add_argument(
        "--rows", nargs="+", default=["exact", "fp32", "int8_gradients", "int8", "int4_gradients", "int4"]
    )
    parser.add_argument("--ranks_per_node", type=int, default=1, help="unless the file says it")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--window", type=int, default=25, help="steps whose mean is a point of a curve")
    parser.add_argument("--limit", type=int, default=1800, help="seconds for one row")
    parser.add_argument("--again", action="store_true", help="run rows that FOLDER has, too")
    parser.add_argument("--title", default="")
    args = parser.parse_args(own)
    for name in args.rows:
        if name not in KEYS:
            parser.error(f"--rows {name}: give some of {', '.join(KEYS)}")
    file = take_flag(flags, "deepspeed_config")
    if file is None:
        parser.error("after -- there must be --deepspeed_config")
    config = json.loads(Path(file).read_text())
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    errors = {}
    for name in args.rows:
        metrics = folder / name / "metrics.jsonl"
        if not args.again and metrics.exists() and len(read_metrics(metrics)) >= args.steps:
            continue
        print(f"compression_curves.py: {name}", file=sys.stderr)
        if error := run(name, folder, args, config, flags):
            errors[name] = error
    there = {name: folder / name / "metrics.jsonl" for name in KEYS}
    rows = {name: read_metrics(path) for name, path in there.items() if path.exists() and name not in errors}
    rows = {name: steps for name, steps in rows.items() if len(steps) >= args.window}
    results = {name: result(steps, rows.get("exact", []), args.window) for name, steps in rows.items()}
    results |= {name: {"error": error} for name, error in errors.items()}
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    (folder / "table.md").write_text(table(results))
    print(table(results), end="")
    if rows:
        plot(rows, args.window, folder / "curves.svg", args.title)
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
