#!/usr/bin/env python3
"""Trains the same initial weights with several settings (rows), and plots losses relative to the first row.

    bench/loss_curves.py fp8 FOLDER [--rows bf16 tensorwise ...] [--launch "mpirun -n 2 ..."] -- FLAGS OF mpzero train
    bench/loss_curves.py compression FOLDER [--rows exact int8 ...] [--launch ...] -- FLAGS OF mpzero train
    bench/loss_curves.py moments FOLDER [--rows fp32 bf16] [--launch ...] -- FLAGS OF mpzero train

fp8           bf16; bf16_noise, with the attention kernel of --deterministic, which shows the effect of different
              rounding; tensorwise and rowwise, the FP8 recipes; tensorwise_fast, with fast accumulation also for
              gradients. Default: one process
compression   keys of zero_optimization: exact; fp32, without compression and with fp32 gradients, which shows the
              effect of different rounding; int8_gradients, int8 (and weights), int4_gradients, int4 (4-bit gradients,
              int8 weights). Default: two ranks of this machine, which NCCL treats as two hosts
moments       AdamW moments: fp32; bf16; fp32_noise, with fp32 gradients, which shows the effect of different rounding.
              Default: one process

FLAGS must include --deepspeed_config. Rows with results in FOLDER are skipped, unless --again is set. Writes to FOLDER:
a folder for each row with its log and metrics, table.md, results.json and curves.svg (losses as means over --window
steps, differences from the first row, and gradient norms). Exits with status 1 if a row failed, e.g. because of a
non-finite loss.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measures import read_metrics
from network_experiment import command_of, sentence_of, split_flags, take_flag


@dataclass(frozen=True)
class Row:
    label: str
    change: Callable[[dict], dict] = lambda config: config  # applies the row's setting to a ds_config.json
    flags: tuple[str, ...] = ()


def with_recipe(recipe: str, **keys: str) -> Callable[[dict], dict]:
    return lambda config: {**config, "fp8": {**config.get("fp8", {}), "enabled": True, "recipe": recipe, **keys}}


def without_fp8(config: dict) -> dict:
    return {key: value for key, value in config.items() if key != "fp8"}


def with_keys(**keys: bool) -> Callable[[dict], dict]:
    """Sets compression keys of zero_optimization in a ds_config.json, and removes all others."""

    def change(config: dict) -> dict:
        zero = {key: value for key, value in config["zero_optimization"].items() if "quantized" not in key}
        return {**config, "zero_optimization": {**zero, **keys}}

    return change


def in_fp32(config: dict) -> dict:
    return {**with_keys()(config), "communication_data_type": "fp32"}


def with_moments(in_bf16: bool) -> Callable[[dict], dict]:
    return lambda config: {**config, "bf16": {**config["bf16"], "bf16_optimizer_states": in_bf16}}


GRADIENTS, WEIGHTS = {"zero_quantized_gradients": True}, {"zero_quantized_weights": True}
FOUR_BITS = ("--quantized_gradient_bits=4",)
# The first row of each comparison is the reference.
COMPARISONS = {
    "fp8": {
        "bf16": Row("bf16", without_fp8),
        "bf16_noise": Row("bf16, different attention kernel", without_fp8, ("--deterministic",)),
        "tensorwise": Row("FP8, tensorwise", with_recipe("tensorwise")),
        "tensorwise_fast": Row("FP8, tensorwise, all fast", with_recipe("tensorwise", fast_accumulation="all")),
        "rowwise": Row("FP8, rowwise", with_recipe("rowwise")),
    },
    "compression": {
        "exact": Row("exact", with_keys()),
        "fp32": Row(
            "exact, gradients in fp32", lambda config: {**with_keys()(config), "communication_data_type": "fp32"}
        ),
        "int8_gradients": Row("int8 gradients", with_keys(**GRADIENTS)),
        "int8": Row("int8 gradients and weights", with_keys(**GRADIENTS, **WEIGHTS)),
        "int4_gradients": Row("4-bit gradients", with_keys(**GRADIENTS), FOUR_BITS),
        "int4": Row("4-bit gradients, int8 weights", with_keys(**GRADIENTS, **WEIGHTS), FOUR_BITS),
    },
    "moments": {
        "fp32": Row("moments in fp32", with_moments(False)),
        "bf16": Row("moments in bf16", with_moments(True)),
        "fp32_noise": Row(
            "moments in fp32, gradients in fp32",
            lambda config: {**with_moments(False)(config), "communication_data_type": "fp32"},
        ),
    },
}


def means(values: list[float], window: int) -> list[float]:
    """Returns means over full, non-overlapping windows."""
    return [statistics.fmean(values[i : i + window]) for i in range(0, len(values) - window + 1, window)]


def result(steps: list[dict], first: list[dict], window: int) -> dict:
    """Returns a row's table entries: final loss, difference from the first row, and step time."""
    losses = [step["loss"] for step in steps]
    common = min(len(losses), len(first))
    ours, theirs = means(losses[:common], window), means([step["loss"] for step in first][:common], window)
    difference = [a - b for a, b in zip(ours, theirs, strict=True)]
    validation = [step["validation_loss"] for step in steps if step.get("validation_loss") is not None]
    return {
        "steps": len(steps),
        "last_loss": statistics.fmean(losses[-window:]),
        "difference_at_end": difference[-1] if difference else None,
        "largest_difference": max(difference, key=abs) if difference else None,
        "validation_loss": validation[-1] if validation else None,
        "gradient_norm": statistics.fmean(step["grad_norm"] for step in steps[-window:]),
        "internode_megabytes": statistics.median(step.get("internode_bytes", 0) for step in steps) / 1e6,
        "step_ms": statistics.median(step["step_seconds"] for step in steps) * 1e3,
    }


def command(args: argparse.Namespace, words: list[str]) -> list[str]:
    if args.comparison == "compression":
        return command_of(args.launch, words)
    return [*shlex.split(args.launch), *words]


def train(
    name: str,
    row: Row,
    args: argparse.Namespace,
    config: dict,
    flags: list[str],
) -> str:
    """Trains one row. Returns the reason for a failure, or an empty string."""
    own = args.folder.resolve() / name
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    file, metrics, log = own / "ds_config.json", own / "metrics.jsonl", own / "log.txt"
    file.write_text(json.dumps(row.change(config), indent=1), encoding="utf-8")
    words = [str(args.build / "bin" / "mpzero"), "train", *flags, f"--deepspeed_config={file}"]
    words += [f"--max_steps={args.steps}", "--checkpoint_freq=0", "--save_final=false"]
    words += [f"--checkpoint_dir={own / 'checkpoints'}", f"--metrics_file={metrics}", *row.flags]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command(args, words), stdout=output, stderr=subprocess.STDOUT)
        try:
            status = process.wait(timeout=args.limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return f"timed out after {args.limit} s"
    return "" if status == 0 else sentence_of(log.read_text(errors="replace", encoding="utf-8"))


def run(args: argparse.Namespace, config: dict, flags: list[str]) -> tuple[dict[str, list[dict]], dict[str, str]]:
    """Trains rows of args.rows that have no results in FOLDER. Returns the metrics of all rows in FOLDER, and errors by
    row.
    """
    folder, rows = args.folder.resolve(), COMPARISONS[args.comparison]
    folder.mkdir(parents=True, exist_ok=True)
    errors = {}
    for name in args.rows:
        metrics = folder / name / "metrics.jsonl"
        if not args.again and metrics.exists() and len(read_metrics(metrics)) >= args.steps:
            continue
        print(f"{Path(sys.argv[0]).name}: {name}", file=sys.stderr)
        if error := train(name, rows[name], args, config, flags):
            errors[name] = error
    there = {name: folder / name / "metrics.jsonl" for name in rows}
    trained = {name: read_metrics(path) for name, path in there.items() if path.exists() and name not in errors}
    return {name: steps for name, steps in trained.items() if len(steps) >= args.window}, errors


def table(results: dict[str, dict], rows: dict[str, Row]) -> str:
    first = next(iter(rows))
    lines = [
        f"| row | final loss | relative to {first} | largest difference | validation | relative to {first} "
        "| gradient norm | sent per node | step |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    exact = results.get(first, {}).get("validation_loss")
    for name, row in results.items():
        if "error" in row:
            lines.append(f"| {rows[name].label} | failed: {row['error'].replace('|', '/')} | | | | | | | |")
            continue

        def show(key: str, text: str, row: dict = row) -> str:
            return "" if row[key] is None else text.format(row[key])

        validation = row["validation_loss"]
        relative = "" if None in (exact, validation) or name == first else f"{100 * (validation / exact - 1):+.2f}%"
        lines.append(
            f"| {rows[name].label} | {row['last_loss']:.4f} | {show('difference_at_end', '{:+.4f}')} "
            f"| {show('largest_difference', '{:+.4f}')} | {show('validation_loss', '{:.4f}')} | {relative} "
            f"| {row['gradient_norm']:.3f} | {row['internode_megabytes']:.3g} MB | {row['step_ms']:.1f} ms |"
        )
    return "\n".join(lines) + "\n"


def draw(
    rows: dict[str, list[dict]],
    labels: dict[str, str],
    window: int,
    file: Path,
    title: str,
) -> None:
    """Plots losses, their differences from the first row, and gradient norms."""
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"{Path(sys.argv[0]).name}: matplotlib is not installed; skipping the plot", file=sys.stderr)
        return
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "mpzero"
    from matplotlib import pyplot as plt

    first = next(iter(labels))
    curves = {name: means([step["loss"] for step in steps], window) for name, steps in rows.items()}
    figure, axes = plt.subplots(1, 3, figsize=(15, 3.6), layout="constrained")
    losses, differences, gradients = axes
    for name, curve in curves.items():
        x = [(i + 0.5) * window for i in range(len(curve))]
        losses.plot(x, curve, label=labels[name], linewidth=1)
        color = losses.lines[-1].get_color()
        if name != first and first in curves:
            pairs = list(zip(curve, curves[first], strict=False))
            differences.plot(x[: len(pairs)], [a - b for a, b in pairs], color=color, linewidth=1)
        norms = means([step["grad_norm"] for step in rows[name]], window)
        gradients.plot(x[: len(norms)], norms, color=color, linewidth=1)
    differences.axhline(0, color="black", linewidth=0.5)
    for axis in axes:
        axis.set_xlabel("step")
    losses.set_ylabel(f"loss, mean of {window} steps")
    differences.set_ylabel(f"difference from: {labels[first]}")
    gradients.set_ylabel(f"gradient norm, mean of {window} steps")
    gradients.set_yscale("log")
    losses.legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)


def main(arguments: list[str]) -> int:
    own, flags = split_flags(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", choices=list(COMPARISONS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--launch", default="", help="command that starts the ranks, without mpzero")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="rows to train; default: all")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--window", type=int, default=25, help="number of steps to average per point")
    parser.add_argument("--limit", type=int, default=1800, help="time limit of one row, in seconds")
    parser.add_argument("--again", action="store_true", help="also run rows that have results in FOLDER")
    parser.add_argument("--title", default="")
    parser.add_argument("--ranks_per_node", type=int, default=1, help="default if not set in the file")
    args = parser.parse_args(own)
    rows = COMPARISONS[args.comparison]
    args.rows = args.rows or list(rows)
    if unknown := [name for name in args.rows if name not in rows]:
        parser.error(f"--rows {unknown[0]}: {args.comparison} has {', '.join(rows)}")
    file = take_flag(flags, "deepspeed_config")
    if file is None:
        parser.error("pass --deepspeed_config after --")
    config = json.loads(Path(file).read_text(encoding="utf-8"))
    if args.comparison in ("fp8", "moments") and not config.get("bf16", {}).get("enabled"):
        parser.error(f"{file}: {args.comparison} requires bf16; enable bf16 in this file")
    zero = config.setdefault("zero_optimization", {})
    if args.comparison == "compression" and not {"mics_shard_size", "zero_hpz_partition_size"} & zero.keys():
        zero["mics_shard_size"] = args.ranks_per_node
    trained, errors = run(args, config, flags)
    first = trained.get(next(iter(rows)), [])
    results: dict[str, dict] = {name: result(steps, first, args.window) for name, steps in trained.items()}
    results |= {name: {"error": error} for name, error in errors.items()}
    folder, text = args.folder.resolve(), table(results, rows)
    (folder / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (folder / "table.md").write_text(text, encoding="utf-8")
    print(text, end="")
    if trained:
        labels = {name: row.label for name, row in rows.items()}
        draw(trained, labels, args.window, folder / "curves.svg", args.title)
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
