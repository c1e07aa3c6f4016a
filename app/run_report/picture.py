"""Plots the curves of one run or of several runs: loss, learning rate, gradient norm and time breakdown."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # needs no display
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import EngFormatter, MaxNLocator
from run_files.metric_names import STEP_PARTS, validation_losses

from run_report.reading import Run
from run_report.thinning import smooth

TRAIN, LR, NORM = "#2f6fb0", "#3f8f5f", "#8a6fa8"
VALIDATION = ("#d1495b", "#e0a13c", "#3f8f5f", "#8a6fa8", "#7a4b2e")  # one color per set
MARKERS = "os^Dv"
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.xmargin": 0.003,
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
SPIKES = 0.995  # quantile that determines the upper axis limit
PART_COLORS = ("#2f6fb0", "#7fb0dc", "#3f8f5f", "#d1495b", "#e0a13c")  # by index in STEP_PARTS


def draw(runs: list[Run], output: Path, title: str | None, smoothing: int | None) -> None:
    """For several runs, plots only loss and learning rate. Raises: OSError; ValueError for an unsupported format."""
    plt.rcParams.update(STYLE)
    panels = [(3.4, lambda axis: draw_loss(axis, runs, smoothing)), (1, lambda axis: draw_lr(axis, runs))]
    columns = runs[0].columns
    if len(runs) == 1 and "grad_norm" in columns:
        panels.append((1, lambda axis: draw_norm(axis, columns["step"], columns["grad_norm"])))
    if len(runs) == 1 and all(name in columns for name in STEP_PARTS):
        panels.append((1.4, lambda axis: draw_split(axis, columns)))
    heights = [height for height, _ in panels]
    figure, axes = plt.subplots(
        len(panels), 1, sharex=True, figsize=(9, 1.2 * sum(heights) + 0.7), height_ratios=heights, layout="constrained"
    )
    title = title or f"Training loss of {', '.join(run.name for run in runs)}"
    figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold", color="#1c1f24", wrap=True)
    for axis, (_, draw_panel) in zip(axes, panels, strict=True):
        draw_panel(axis)
    axes[-1].set_xlabel("optimizer step")
    axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 2.5, 5, 10], integer=True))
    if len(runs) == 1 and "tokens" in columns:
        add_token_axis(axes[0], columns["step"], columns["tokens"])
    figure.align_ylabels(axes)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
    figure.savefig(output, dpi=150, format=output.suffix[1:] or "png")
    plt.close(figure)


def color_of(place: int, runs: list[Run]):
    return TRAIN if len(runs) == 1 else plt.get_cmap("tab10")(place % 10)


def draw_loss(axis, runs: list[Run], smoothing: int | None) -> None:
    """Plots a single run with a moving average and one color per validation set, or several runs in one color each."""
    alone = len(runs) == 1
    for place, run in enumerate(runs):
        steps, loss, color = run.columns["step"], run.columns["loss"], color_of(place, runs)
        width = (smoothing or len(steps) // 50) | 1  # odd
        name = "training" if alone else run.name
        if alone and width > 1:
            axis.plot(steps, loss, color=color, linewidth=0.7, alpha=0.35, label="training, each step")
            name += f", mean of {width} steps"
        axis.plot(steps, smooth(loss, width), color=color, linewidth=1.8, label=name)
        for number, (key, label) in enumerate(validation_losses(run.columns).items()):
            known = np.isfinite(run.columns[key])
            if not known.any():
                continue
            style = {"color": color, "linestyle": "--"}
            if alone:
                style = {"color": VALIDATION[number % len(VALIDATION)], "label": label}
            at, values = steps[known], run.columns[key][known]
            axis.plot(
                at, values, linewidth=1.2, marker=MARKERS[number % len(MARKERS)], markersize=5, clip_on=False, **style
            )
            if alone:
                text = {"xytext": (-6, 9), "textcoords": "offset points", "ha": "right", "fontweight": "bold"}
                axis.annotate(f"{values[-1]:.3f}", (at[-1], values[-1]), color=style["color"], **text)
    axis.set_ylabel("loss (nats per token)" if alone else "loss (nats per token; dashed: validation)")
    axis.legend(loc="upper right")


def draw_lr(axis, runs: list[Run]) -> None:
    for place, run in enumerate(runs):
        if "lr" in run.columns:
            color = LR if len(runs) == 1 else color_of(place, runs)
            axis.plot(run.columns["step"], run.columns["lr"], color=color, linewidth=1.5)
    axis.set_ylim(bottom=0)
    axis.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2), useMathText=True)
    axis.set_ylabel("learning rate")


def draw_norm(axis, steps: np.ndarray, norm: np.ndarray) -> None:
    axis.plot(steps, norm, color=NORM, linewidth=0.9)
    known = norm[np.isfinite(norm)]
    top = np.quantile(known, SPIKES) * 1.25 if len(known) else 1.0
    axis.set_ylim(0, top if top > 0 else 1.0)
    axis.set_ylabel("gradient norm")


def draw_split(axis, columns) -> None:
    """Plots the stacked time breakdown of each step."""
    steps = columns["step"]
    parts = [np.nan_to_num(columns[name]) for name in STEP_PARTS]
    unit, scale = ("s", 1) if np.median(sum(parts)) >= 1 else ("ms", 1e3)
    axis.stackplot(steps, [part * scale for part in parts], labels=STEP_PARTS.values(), colors=PART_COLORS, linewidth=0)
    top = np.quantile(sum(parts), SPIKES) * scale * 1.35
    axis.set_ylim(0, top if top > 0 else 1.0)
    axis.set_ylabel(f"step ({unit})")
    axis.legend(loc="upper right", ncols=len(STEP_PARTS), fontsize=8, handlelength=1, columnspacing=1)


def add_token_axis(axis, steps: np.ndarray, tokens: np.ndarray) -> None:
    """Adds a second x axis on top for the training tokens, which may not be proportional to the steps."""
    known = np.isfinite(tokens)
    steps, tokens = steps[known], tokens[known]
    if len(steps) < 2 or (np.diff(tokens) <= 0).any() or (np.diff(steps) <= 0).any():
        return
    # Ticks may lie beyond both ends.
    x, y = (with_ends(values, steps) for values in (steps, tokens))
    top = axis.secondary_xaxis("top", functions=(lambda at: np.interp(at, x, y), lambda at: np.interp(at, y, x)))
    top.xaxis.set_major_formatter(EngFormatter(sep=" "))
    top.set_xlabel("tokens", labelpad=6)


def with_ends(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Extrapolates y linearly at both ends; each extension is as long as the range of x."""
    first, last = ((y[i + 1] - y[i]) / (x[i + 1] - x[i]) * (x[-1] - x[0]) for i in (0, len(x) - 2))
    return np.concatenate([[y[0] - first], y, [y[-1] + last]])
