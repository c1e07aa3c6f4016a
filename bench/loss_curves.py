"""The same training in several rows that differ in a key or a flag: their losses beside those of the first row."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measures import read_metrics
from network_experiment import sentence_of


@dataclass(frozen=True)
class Row:
    label: str
    change: Callable[[dict], dict] = lambda config: config  # a ds_config.json, to that of the row
    flags: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser, rows: dict[str, Row]) -> None:
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--launch", default="", help="the command that starts the ranks, without mpzero")
    parser.add_argument("--rows", nargs="+", choices=list(rows), default=list(rows))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--window", type=int, default=25, help="steps whose mean is a point of a curve")
    parser.add_argument("--limit", type=int, default=1800, help="seconds for one row")
    parser.add_argument("--again", action="store_true", help="run rows that FOLDER has, too")
    parser.add_argument("--title", default="")


def means(values: list[float], window: int) -> list[float]:
    """Of each full window, which do not overlap."""
    return [statistics.fmean(values[i : i + window]) for i in range(0, len(values) - window + 1, window)]


def result(steps: list[dict], first: list[dict], window: int) -> dict:
    """What a table says of a row: its loss at the end, how far it is from the first row, its time."""
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
        "internode_megabytes": statistics.median(step.get("internode_bytes", 0) for step in steps) / 1e6,
        "step_ms": statistics.median(step["step_seconds"] for step in steps) * 1e3,
    }


def train(
    name: str,
    row: Row,
    args: argparse.Namespace,
    config: dict,
    flags: list[str],
    command: Callable[[list[str]], list[str]],
) -> str:
    """Trains one row. Returns why it failed; empty: it did not."""
    own = args.folder.resolve() / name
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    file, metrics, log = own / "ds_config.json", own / "metrics.jsonl", own / "log.txt"
    file.write_text(json.dumps(row.change(config), indent=1), encoding="utf-8")
    words = [str(args.build / "bin" / "mpzero"), "train", *flags, f"--deepspeed_config={file}"]
    words += [f"--max_steps={args.steps}", "--checkpoint_freq=0", "--save_final=false"]
    words += [f"--checkpoint_dir={own / 'checkpoints'}", f"--metrics_file={metrics}", *row.flags]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command(words), stdout=output, stderr=subprocess.STDOUT)
        try:
            status = process.wait(timeout=args.limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return f"not done after {args.limit} s"
    return "" if status == 0 else sentence_of(log.read_text(errors="replace", encoding="utf-8"))


def run(
    rows: dict[str, Row],
    args: argparse.Namespace,
    config: dict,
    flags: list[str],
    command: Callable[[list[str]], list[str]],
) -> tuple[dict[str, list[dict]], dict[str, str]]:
    """Trains the rows that args.rows names and FOLDER lacks. Returns the metrics of all rows that FOLDER has, and why
    others failed."""
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    errors = {}
    for name in args.rows:
        metrics = folder / name / "metrics.jsonl"
        if not args.again and metrics.exists() and len(read_metrics(metrics)) >= args.steps:
            continue
        print(f"{Path(sys.argv[0]).name}: {name}", file=sys.stderr)
        if error := train(name, rows[name], args, config, flags, command):
            errors[name] = error
    there = {name: folder / name / "metrics.jsonl" for name in rows}
    trained = {name: read_metrics(path) for name, path in there.items() if path.exists() and name not in errors}
    return {name: steps for name, steps in trained.items() if len(steps) >= args.window}, errors


def write(folder: Path, results: dict[str, dict], table: str) -> None:
    folder = folder.resolve()
    (folder / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (folder / "table.md").write_text(table, encoding="utf-8")
    print(table, end="")


def draw(
    rows: dict[str, list[dict]],
    labels: dict[str, str],
    window: int,
    file: Path,
    title: str,
    *,
    gradient_norms: bool = False,
) -> None:
    """The losses, their differences to those of the first row, and, if asked for, the gradient norms."""
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"{Path(sys.argv[0]).name}: matplotlib is not installed, so there is no plot", file=sys.stderr)
        return
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "mpzero"
    from matplotlib import pyplot as plt

    first = next(iter(labels))
    curves = {name: means([step["loss"] for step in steps], window) for name, steps in rows.items()}
    panels = 3 if gradient_norms else 2
    figure, axes = plt.subplots(1, panels, figsize=(5 * panels, 3.6), layout="constrained")
    losses, differences = axes[0], axes[1]
    for name, curve in curves.items():
        x = [(i + 0.5) * window for i in range(len(curve))]
        losses.plot(x, curve, label=labels[name], linewidth=1)
        color = losses.lines[-1].get_color()
        if name != first and first in curves:
            pairs = list(zip(curve, curves[first], strict=False))
            differences.plot(x[: len(pairs)], [a - b for a, b in pairs], color=color, linewidth=1)
        if gradient_norms:
            norms = means([step["grad_norm"] for step in rows[name]], window)
            axes[2].plot(x[: len(norms)], norms, color=color, linewidth=1)
    differences.axhline(0, color="black", linewidth=0.5)
    for axis in axes:
        axis.set_xlabel("step")
    losses.set_ylabel(f"loss, mean of {window} steps")
    differences.set_ylabel(f"difference to: {labels[first]}")
    if gradient_norms:
        axes[2].set_ylabel(f"gradient norm, mean of {window} steps")
        axes[2].set_yscale("log")
    losses.legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)
