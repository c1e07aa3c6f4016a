#!/usr/bin/env python3
"""Plots results of bench_kernels: the time of each operation in a step, divided into ceiling and excess.

bench/plot_roofline.py KERNELS.json PICTURE.svg [WORD ...]

Draws one panel for each workload whose name contains one of the words. The dark part of a bar is the operation's time
at its ceiling: the measured copy bandwidth, the fastest cuBLASLt algorithm for the shape, or the rate of a large
matmul.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

AT_CEILING, ABOVE = "#2f5d8a", "#f0a35e"


def operations(workload):
    """Returns the operations of a step, most expensive first: (label, ms per step, ms at the ceiling, rate)."""
    rows = []
    for row in workload["operations"]:
        milliseconds = 1e3 * row["calls"] * row["seconds"]
        if milliseconds > 0:
            label = f"{row['part']}: {row['name']}"
            at_ceiling = milliseconds * min(1.0, row["share_of_ceiling"])
            rate = f"{row['rate']:.0f} {row['unit']}, {100 * row['share_of_ceiling']:.0f}%"
            rows.append((label, milliseconds, at_ceiling, rate))
    return sorted(rows, key=lambda row: -row[1])


def draw(workloads, picture):
    heights = [len(operations(workload)) for workload in workloads]
    figure, axes = pyplot.subplots(
        len(workloads),
        1,
        figsize=(10, 0.24 * sum(heights) + 1.2 * len(workloads)),
        gridspec_kw={"height_ratios": heights},
        squeeze=False,
        layout="constrained",
    )
    for axis, workload in zip(axes[:, 0], workloads, strict=True):
        rows = operations(workload)
        positions = range(len(rows))
        times = [row[1] for row in rows]
        axis.barh(positions, times, color=ABOVE, label="above the ceiling")
        axis.barh(positions, [row[2] for row in rows], color=AT_CEILING, label="at the ceiling")
        axis.set_yticks(positions, [row[0] for row in rows])
        for i, row in enumerate(rows):
            axis.text(row[1] + 0.01 * times[0], i, row[3], va="center", fontsize=7)
        axis.invert_yaxis()
        axis.set_xlim(0, 1.2 * times[0])
        axis.tick_params(labelsize=7)
        axis.set_xlabel("ms per step", fontsize=8)
        total, least = sum(times), sum(row[2] for row in rows)
        axis.set_title(f"{workload['workload']}: {total:.1f} ms sum of operations, {least:.1f} ms at the ceilings")
        axis.legend(fontsize=8, loc="lower right")
    figure.savefig(picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    measured = json.loads(arguments.kernels.read_text(encoding="utf-8"))["workloads"]
    wanted = [w for w in measured if not arguments.words or any(word in w["workload"] for word in arguments.words)]
    if not wanted:
        parser.error(f"no workload in {arguments.kernels} matches; it contains {[w['workload'] for w in measured]}")
    draw(wanted, arguments.picture)


if __name__ == "__main__":
    main()
