#!/usr/bin/env python3
"""Plots a run's loss, learning rate, gradient norm and time split from its metrics file, or compares runs.

    plot_metrics.py checkpoints/metrics.jsonl checkpoints/loss.png
    plot_metrics.py runs/a runs/b runs/c compared.png

A run is named by its metrics file, or by the folder that holds metrics.jsonl. Several are drawn with one curve each.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import EngFormatter, MaxNLocator
from run_files.json_lines import Damaged, numbered_objects
from run_files.regular_files import NotReadable
from run_files.replacing import replacing
from run_files.step_parts import STEP_PARTS
from run_files.utf8 import restart_in_utf8
from run_files.validation_sets import validation_losses
from run_files.values import as_number
from run_report.thinning import smooth

TRAIN, LR, NORM = "#2f6fb0", "#3f8f5f", "#8a6fa8"
VALIDATION = ("#d1495b", "#e0a13c", "#3f8f5f", "#8a6fa8", "#7a4b2e")  # one color a set
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.edgecolor": "#8b9099",
    "axes.labelcolor": "#30343b",
    "axes.titlecolor": "#1c1f24",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e8eb",
    "grid.linewidth": 0.8,
    "xtick.color": "#5a606b",
    "ytick.color": "#5a606b",
    "legend.frameon": False,
}
SPIKES = 0.995  # this quantile of the values sets the height of an axis
PART_COLORS = ("#2f6fb0", "#7fb0dc", "#3f8f5f", "#d1495b", "#e0a13c")  # of STEP_PARTS


class PlotError(Exception):
    """A user error; the text is one sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run's --metrics_file, or its folder")
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="the picture: .png, .svg or .pdf")
    parser.add_argument("--title", help="default: the names of the runs' folders")
    parser.add_argument(
        "--smoothing", type=int, metavar="STEPS", help="steps that the smooth line averages (default: 2 percent)"
    )
    arguments = parser.parse_args()
    sys.stdout.reconfigure(errors="surrogateescape")  # names of files may be any bytes
    try:
        files = [metrics_file(run) for run in arguments.runs]
        if arguments.output.is_dir() or arguments.output.suffix == ".jsonl":
            raise PlotError(f"{arguments.output} is a run: name the picture last, such as compared.png.")
        if len(files) == 1:
            draw(read_columns(files[0]), files[0], arguments)
        else:
            compare([read_columns(file) for file in files], labels_of(files), arguments)
    except PlotError as error:
        print(f"plot_metrics.py: {error}", file=sys.stderr)
        return 2
    print(arguments.output)
    return 0


def metrics_file(run: Path) -> Path:
    return run / "metrics.jsonl" if run.is_dir() else run


def labels_of(files: list[Path]) -> list[str]:
    """A name for each run: its folder, with as many of the folders above as tell all of them apart."""
    parts = [file.resolve().parent.parts for file in files]
    if len(set(parts)) < len(parts):
        return [str(file) for file in files]
    depth = next(n for n in range(1, max(map(len, parts)) + 1) if len({part[-n:] for part in parts}) == len(parts))
    return ["/".join(part[-depth:]) for part in parts]


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """-> the values of each field by line; NaN if a line does not have it or has null"""
    damaged = Damaged()
    try:
        rows = [row for _, row in numbered_objects(path, damaged) if "step" in row and "loss" in row]
    except FileNotFoundError as error:
        raise PlotError(f"{path} does not exist: give a file written by --metrics_file.") from error
    except NotReadable as error:
        raise PlotError(f"{error}.") from error
    if damaged.count:
        print(f"plot_metrics.py: warning: {path} has {damaged}, left out here.", file=sys.stderr)
    if not rows:
        raise PlotError(f"{path} holds no step: give a file written by --metrics_file.")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([as_number(row.get(name)) for row in rows]) for name in names}


def compare(runs: list[dict[str, np.ndarray]], labels: list[str], arguments: argparse.Namespace) -> None:
    """Loss and learning rate of each run in a color of its own; dashed: validation."""
    plt.rcParams.update(STYLE)
    figure, axes = plt.subplots(2, 1, sharex=True, figsize=(9, 6), height_ratios=[3.4, 1], layout="constrained")
    title = arguments.title or f"Training loss of {', '.join(labels)}"
    figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold", color="#1c1f24", wrap=True)
    colors = plt.get_cmap("tab10" if len(runs) <= 10 else "viridis", len(runs) if len(runs) > 10 else None)
    for index, (columns, label) in enumerate(zip(runs, labels, strict=True)):
        steps, color = columns["step"], colors(index)
        width = (arguments.smoothing or len(steps) // 50) | 1  # odd
        axes[0].plot(steps, smooth(columns["loss"], width), color=color, linewidth=1.6, label=label)
        for place, key in enumerate(validation_losses(columns)):
            known = np.isfinite(columns[key])
            style = {"color": color, "linewidth": 1, "linestyle": "--", "marker": marker(place), "markersize": 4}
            axes[0].plot(steps[known], columns[key][known], **style)
        axes[1].plot(steps, columns.get("lr", np.full(len(steps), math.nan)), color=color, linewidth=1.4)
    axes[0].set_ylabel("loss (nats per token; dashed: validation)")
    axes[0].legend(loc="upper right")
    axes[1].set_ylim(bottom=0)
    axes[1].ticklabel_format(axis="y", style="sci", scilimits=(-2, 2), useMathText=True)
    axes[1].set_ylabel("learning rate")
    axes[1].set_xlabel("optimizer step")
    axes[1].xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 2.5, 5, 10], integer=True))
    figure.align_ylabels(axes)
    save(figure, arguments.output)


def draw(columns: dict[str, np.ndarray], metrics: Path, arguments: argparse.Namespace) -> None:
    plt.rcParams.update(STYLE)
    with_norm = "grad_norm" in columns
    with_split = all(name in columns for name in STEP_PARTS)
    heights = [3.4, 1] + [1] * with_norm + [1.4] * with_split
    size = (9, 8.6 if with_split else 7)
    figure, axes = plt.subplots(len(heights), 1, sharex=True, figsize=size, height_ratios=heights, layout="constrained")
    steps = columns["step"]
    title = arguments.title or default_title(metrics)
    figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold", color="#1c1f24")
    draw_loss(axes[0], columns, (arguments.smoothing or len(steps) // 50) | 1)  # odd
    draw_lr(axes[1], steps, columns.get("lr", np.full(len(steps), math.nan)))
    if with_norm:
        draw_norm(axes[2], steps, columns["grad_norm"])
    if with_split:
        draw_split(axes[-1], columns)
    axes[-1].set_xlabel("optimizer step")
    axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 2.5, 5, 10], integer=True))
    if len(steps) > 1:
        axes[-1].set_xlim(steps.min() - 1, steps.max())
    if "tokens" in columns:
        add_token_axis(axes[0], steps, columns["tokens"])
    figure.align_ylabels(axes)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
    save(figure, arguments.output)


def default_title(metrics: Path) -> str:
    folder = metrics.resolve().parent.name
    return f"Training loss of {folder}" if folder else "Training loss"


def draw_loss(axis, columns: dict[str, np.ndarray], width: int) -> None:
    steps, loss = columns["step"], columns["loss"]
    if width > 1:
        axis.plot(steps, loss, color=TRAIN, linewidth=0.7, alpha=0.35, label="training, each step")
        axis.plot(steps, smooth(loss, width), color=TRAIN, linewidth=2, label=f"training, mean of {width} steps")
    else:
        axis.plot(steps, loss, color=TRAIN, linewidth=1.6, label="training")
    for place, (key, label) in enumerate(validation_losses(columns).items()):
        known = np.isfinite(columns[key])
        if not known.any():
            continue
        color = VALIDATION[place % len(VALIDATION)]
        style = {"color": color, "linewidth": 1.2, "marker": marker(place), "markersize": 6, "markeredgecolor": "white"}
        axis.plot(steps[known], columns[key][known], label=label, clip_on=False, zorder=5, **style)
        axis.annotate(
            f"{columns[key][known][-1]:.3f}",
            (steps[known][-1], columns[key][known][-1]),
            xytext=(-6, 9),
            textcoords="offset points",
            ha="right",
            color=color,
            fontweight="bold",
        )
    axis.set_ylabel("loss (nats per token)")
    axis.legend(loc="upper right")


def marker(place: int) -> str:
    """Of a validation set."""
    return "os^Dv"[place % 5]


def draw_lr(axis, steps: np.ndarray, lr: np.ndarray) -> None:
    axis.plot(steps, lr, color=LR, linewidth=1.6)
    axis.fill_between(steps, 0, lr, color=LR, alpha=0.12, linewidth=0)
    axis.set_ylim(bottom=0)
    axis.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2), useMathText=True)
    axis.set_ylabel("learning rate")


def draw_norm(axis, steps: np.ndarray, norm: np.ndarray) -> None:
    axis.plot(steps, norm, color=NORM, linewidth=0.9)
    known = norm[np.isfinite(norm)]
    top = np.quantile(known, SPIKES) * 1.25 if len(known) else 1.0
    axis.set_ylim(0, top if top > 0 else 1.0)
    axis.set_ylabel("gradient norm")


def draw_split(axis, columns: dict[str, np.ndarray]) -> None:
    """Where each step's time went, stacked."""
    steps = columns["step"]
    parts = [np.nan_to_num(columns[name]) for name in STEP_PARTS]
    unit, scale = ("s", 1) if np.median(sum(parts)) >= 1 else ("ms", 1e3)
    axis.stackplot(steps, [part * scale for part in parts], labels=STEP_PARTS.values(), colors=PART_COLORS, linewidth=0)
    top = np.quantile(sum(parts), SPIKES) * scale * 1.35
    axis.set_ylim(0, top if top > 0 else 1.0)
    axis.set_ylabel(f"step ({unit})")
    axis.legend(loc="upper right", ncols=len(STEP_PARTS), fontsize=8, handlelength=1, columnspacing=1)


def add_token_axis(axis, steps: np.ndarray, tokens: np.ndarray) -> None:
    """A second x axis on top that counts the tokens trained on, which may grow unevenly."""
    known = np.isfinite(tokens)
    if known.sum() < 2 or (np.diff(tokens[known]) <= 0).any():
        return
    from_steps = (steps[known], tokens[known])
    top = axis.secondary_xaxis(
        "top",
        functions=(lambda step: extended(step, *from_steps), lambda count: extended(count, *reversed(from_steps))),
    )
    top.xaxis.set_major_formatter(EngFormatter(sep=" "))
    top.set_xlabel("tokens", labelpad=6)


def extended(at: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Linear interpolation of y over x, extrapolated beyond both ends."""
    at = np.asarray(at, dtype=float)
    inside = np.interp(at, x, y)
    before = y[0] + (at - x[0]) * (y[1] - y[0]) / (x[1] - x[0])
    after = y[-1] + (at - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2])
    return np.where(at < x[0], before, np.where(at > x[-1], after, inside))


def save(figure, output: Path) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with replacing(output) as file:
            figure.savefig(file, dpi=150, format=output.suffix[1:] or "png")
    except ValueError as error:
        raise PlotError(f"{output} has an unsupported extension: use .png, .svg or .pdf.") from error
    except OSError as error:
        raise PlotError(f"{output} cannot be written: {error.strerror}.") from error


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
