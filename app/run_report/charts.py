"""Plotly data and layout of the page's charts. Colors are names of CSS variables: run-0, run-1, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from run_files.metric_names import STEP_PARTS, validation_losses
from run_files.values import as_number, whole

from run_report.node_times import GPU_VALUES
from run_report.rank_times import MOST_RANKS, heat_map
from run_report.reading import Run
from run_report.thinning import smooth, thinned

GIBIBYTE = 1 << 30
DIGITS = 6
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")  # markers of validation sets
SMOOTHED_SHARE = 50  # the moving average covers 1/N of the steps


@dataclass(frozen=True)
class Chart:
    title: str
    about: str  # the unit or a description of the value; one line
    traces: list[dict]
    layout: dict


def charts_of(runs: list[Run]) -> list[Chart]:
    """Returns the charts that have values from at least one run."""
    charts = [
        loss_chart(runs),
        line_chart(runs, "lr", "Learning rate", "per step", axis={"exponentformat": "power"}),
        line_chart(runs, "grad_norm", "Gradient norm", "before clipping"),
        line_chart(runs, "tokens_per_second", "Throughput", "tokens per second, on all ranks", smoothed=True),
        line_chart(runs, "mfu", "MFU", "fraction of the dense bf16 peak", smoothed=True, axis={"tickformat": ".0%"}),
        split_chart(runs[0]) if len(runs) == 1 else mean_split_chart(runs),
        line_chart(runs, "peak_memory_bytes", "Peak memory", "GiB, on rank 0", scale=1 / GIBIBYTE),
        *[rank_chart(run, f" of {run.name}" if len(runs) > 1 else "") for run in runs],
        *[gpu_chart(runs, key) for key in GPU_VALUES],
        network_chart(runs),
        slowest_chart(runs),
        save_chart(runs),
    ]
    return [chart for chart in charts if chart.traces]


def loss_chart(runs: list[Run]) -> Chart:
    traces = []
    for place, run in enumerate(runs):
        loss = run.columns["loss"]
        name = f"{run.name}: " if len(runs) > 1 else ""
        width = smoothing(loss)
        if width > 1 and len(runs) == 1:
            traces.append(line(run, loss, f"{name}each step", place, width=1, opacity=0.35))
        traces.append(line(run, smooth(loss, width), f"{name}training", place))
        for number, (key, label) in enumerate(validation_losses(run.columns).items()):
            trace = line(run, run.columns[key], name + label, place, width=1.5)
            # One run: a color per set. Several runs: a color per run.
            color = f"run-{place}" if len(runs) > 1 else "validation" if number == 0 else f"run-{number % 8}"
            mark = {"color": color, "size": 7}
            symbol = {"symbol": SYMBOLS[number % len(SYMBOLS)]}
            traces.append(trace | {"mode": "lines+markers", "marker": mark | symbol, "line": trace["line"] | mark})
    return Chart("Loss", "nats per token", traces, {})


def line_chart(
    runs: list[Run],
    metric: str,
    title: str,
    about: str,
    smoothed: bool = False,
    scale: float = 1,
    axis: dict | None = None,
) -> Chart:
    traces = []
    for place, run in enumerate(runs):
        values = run.columns.get(metric)
        if values is None or not np.isfinite(values).any():
            continue
        shown = smooth(values, smoothing(values)) if smoothed else values
        traces.append(line(run, shown * scale, run.name, place))
    return Chart(title, about, traces, {"yaxis": {"rangemode": "tozero"} | (axis or {}), "showlegend": len(traces) > 1})


def split_chart(run: Run) -> Chart:
    """Plots the stacked time breakdown of each step."""
    if not all(name in run.columns for name in STEP_PARTS):
        return Chart("", "", [], {})
    total = np.sum([np.nan_to_num(run.columns[name]) for name in STEP_PARTS], axis=0)
    # Stacking requires the same steps for all parts.
    places = thinned(smooth(total, smoothing(total)), 1000)
    traces = []
    for number, (name, label) in enumerate(STEP_PARTS.items()):
        values = smooth(np.nan_to_num(run.columns[name]), smoothing(total))
        style = {"stackgroup": "parts", "line": {"width": 0, "color": f"part-{number}"}, "fillcolor": f"part-{number}"}
        traces.append(curve(axes_of(run), values, places, label, number, 0) | style)
    return Chart("Time breakdown of a step", "seconds, on rank 0", traces, {"yaxis": {"rangemode": "tozero"}})


def mean_split_chart(runs: list[Run]) -> Chart:
    runs = [run for run in runs if all(name in run.columns for name in STEP_PARTS)]
    traces = []
    for number, (name, label) in enumerate(STEP_PARTS.items()):
        seconds = [rounded(float(np.nanmean(run.columns[name]))) for run in runs]
        bar = {"type": "bar", "name": label, "x": [run.name for run in runs], "y": seconds}
        traces.append(bar | {"marker": {"color": f"part-{number}"}})
    layout = {"barmode": "stack", "xaxis": {"type": "category"}}
    return Chart("Time breakdown of a step", "seconds, mean over all steps on rank 0", traces if runs else [], layout)


def rank_chart(run: Run, of_run: str) -> Chart:
    """Plots the step time of each rank. The color scale excludes the fastest and slowest 1%; otherwise, one long step
    would make all other steps look the same."""
    found = heat_map(run.rank_times, run.columns["step"])
    if found is None:
        return Chart("", "", [], {})
    trace = {
        "type": "heatmap",
        "choices": {key: numbers(x[found.places]) for key, x in axes_of(run).items()},
        "y": found.ranks,
        "z": [numbers(row) for row in found.seconds],
        "colorscale": [[0, "heat-0"], [0.5, "heat-1"], [1, "heat-2"]],
        "colorbar": {"title": {"text": "s"}, "thickness": 10, "outlinewidth": 0},
        "hovertemplate": "rank %{y}, %{x}: %{z:.4g} s<extra></extra>",
    }
    least, most = (rounded(float(value)) for value in np.nanpercentile(found.seconds, [1, 99]))
    if least < most:
        trace |= {"zmin": least, "zmax": most}
    axis = {"title": {"text": "rank"}, "type": "category", "autorange": "reversed", "showgrid": False}
    about = "step time of each rank in seconds, excluding waits for other ranks"
    return Chart(f"Time of each rank{of_run}", about, [trace], {"yaxis": axis, "hovermode": "closest"})


def gpu_chart(runs: list[Run], key: str) -> Chart:
    """Plots one curve per GPU of rank 0's node; for several runs, one mean over these GPUs per run."""
    title, about, scale, axis = GPU_VALUES[key]
    traces = []
    for place, run in enumerate(runs):
        node = run.node_times
        of_gpus = {name: node.gpus[name, key] * scale for name in node.gpu_names() if (name, key) in node.gpus}
        if not of_gpus:
            continue
        if len(runs) > 1:
            values = np.array(list(of_gpus.values()))
            known = np.isfinite(values)
            sums, counts = np.where(known, values, 0).sum(axis=0), known.sum(axis=0)
            mean = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
            traces.append(node_line(run, mean, run.name, place))
        else:
            traces += [node_line(run, values, f"GPU {name}", at) for at, (name, values) in enumerate(of_gpus.items())]
    about += node_of(runs) if len(runs) == 1 else "; mean of the GPUs of rank 0's node"
    return Chart(title, about, traces, {"yaxis": {"rangemode": "tozero"} | axis, "showlegend": len(traces) > 1})


def network_chart(runs: list[Run]) -> Chart:
    traces = []
    for place, run in enumerate(runs):
        node, of_run = run.node_times, f"{run.name}: " if len(runs) > 1 else ""
        for number, (name, values) in enumerate((("sent", node.sent), ("received", node.received))):
            if not np.isfinite(values).any():
                continue
            trace = node_line(run, values / 1e9, of_run + name, place if len(runs) > 1 else number)
            if len(runs) > 1 and name == "received":
                trace["line"] |= {"dash": "dot"}
            traces.append(trace)
    return Chart("Network", "GB/s" + node_of(runs), traces, {"yaxis": {"rangemode": "tozero"}})


def node_of(runs: list[Run]) -> str:
    host = runs[0].node_times.host
    return f"; rank 0's node, {host}" if len(runs) == 1 and host else "; rank 0's node"


def node_line(run: Run, values: np.ndarray, name: str, place: int) -> dict:
    """Interpolates the axis positions of readings from the times of the adjacent steps."""
    at, columns = run.node_times.time, run.columns
    time = columns["time"]
    known = np.flatnonzero(np.isfinite(time))
    order = known[np.argsort(time[known], kind="stable")]
    axes = {key: np.interp(at, time[order], columns[key][order]) for key in ("step", "tokens") if key in columns}
    return curve(axes | {"hours": (at - np.nanmin(time)) / 3600}, values, thinned(values), name, place, width=1.5)


def slowest_chart(runs: list[Run]) -> Chart:
    """Plots the number of steps in which each rank was the slowest by over 10%."""
    traces = []
    for place, run in enumerate(runs):
        ranks, shares = run.columns.get("slowest_rank"), run.columns.get("slowest_rank_share")
        if ranks is None or shares is None:
            continue
        world_size = min(whole(run.facts.get("world_size")) or MOST_RANKS, MOST_RANKS)
        late = ranks[(np.nan_to_num(shares) > 0.1) & (ranks >= 0) & (ranks < world_size)].astype(int)
        counts = np.bincount(late, minlength=0 if world_size == MOST_RANKS else world_size)
        if not counts.any():
            continue
        bar = {"type": "bar", "name": run.name, "x": [str(rank) for rank in range(len(counts))], "y": counts.tolist()}
        traces.append(bar | {"marker": {"color": f"run-{place}"}})
    layout = {"xaxis": {"title": {"text": "rank"}, "type": "category"}, "showlegend": len(traces) > 1}
    return Chart("Slowest rank", "steps in which a rank took over 10% longer than the others", traces, layout)


def save_chart(runs: list[Run]) -> Chart:
    traces = []
    for place, run in enumerate(runs):
        saves = [save for save in run.saves if math.isfinite(as_number(save.get("seconds")))]
        if not saves:
            continue
        labels = [save_label(save) for save in saves]
        bar = {"type": "bar", "name": run.name, "x": [whole(save.get("step")) for save in saves], "text": labels}
        bar |= {
            "y": [rounded(as_number(save["seconds"])) for save in saves],
            "textposition": "none",
            "hoverinfo": "x+y+text",
        }
        traces.append(bar | {"marker": {"color": f"run-{place}"}})
    layout = {"xaxis": {"title": {"text": "step"}}, "showlegend": len(traces) > 1}
    return Chart("Checkpoints", "seconds to write", traces, layout)


def save_label(save: dict) -> str:
    size, paused = as_number(save.get("bytes")), as_number(save.get("paused_seconds"))
    words = [f"{size / 1e9:.2f} GB"] if math.isfinite(size) else []
    words += [f"training paused for {paused:.3f} s"] if math.isfinite(paused) else []
    return ", ".join(words)


def line(run: Run, values: np.ndarray, name: str, place: int, width: float = 2, opacity: float = 1) -> dict:
    return curve(axes_of(run), values, thinned(values), name, place, width) | {"opacity": opacity}


def curve(
    axes: dict[str, np.ndarray], values: np.ndarray, places: np.ndarray, name: str, place: int, width: float
) -> dict:
    trace = {"type": "scatter", "mode": "lines", "name": name, "y": numbers(values[places])}
    trace |= {"choices": {key: numbers(x[places]) for key, x in axes.items()}}
    return trace | {"line": {"width": width, "color": f"run-{place}"}}


def axes_of(run: Run) -> dict[str, np.ndarray]:
    """Returns the choices for the x axis: step, tokens, or hours since the run's first step."""
    columns = run.columns
    axes = {key: columns[key] for key in ("step", "tokens") if key in columns}
    if "time" in columns and np.isfinite(columns["time"]).any():
        axes["hours"] = (columns["time"] - np.nanmin(columns["time"])) / 3600
    return axes


def smoothing(values: np.ndarray) -> int:
    return (len(values) // SMOOTHED_SHARE) | 1  # odd


def numbers(values: Iterable[float]) -> list[float | None]:
    return [rounded(float(value)) for value in values]


def rounded(value: float, format_number: Callable[[float], str] = f"{{:.{DIGITS}g}}".format) -> float | None:
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(format_number(value))
