#!/usr/bin/env python3
"""Writes a self-contained HTML report of one run, or a comparison of several runs: settings, curves, time breakdown,
memory, checkpoints, starts and warnings. --png plots the main curves instead.

report.py checkpoints
report.py checkpoints/a checkpoints/b --output compared.html
report.py sweep                                        # all runs in this folder
report.py checkpoints --png loss.png
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from run_files.replacing import replacing
from run_files.utf8 import restart_in_utf8
from run_report.page import page_of
from run_report.reading import ReportError, Run, read_runs


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a run's --checkpoint_dir or --metrics_file, or a folder of runs",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="report file (default: report.html next to metrics.jsonl, report-NAME.html next to NAME.jsonl, "
        "./compared.html for several runs)",
    )
    parser.add_argument(
        "--png",
        type=Path,
        metavar="FILE",
        help="plot to this .png, .svg or .pdf file; the report is then written only if --output is given",
    )
    parser.add_argument("--title", help="title of the plot (default: the runs' names)")
    parser.add_argument(
        "--smoothing", type=int, metavar="STEPS", help="moving average window (default: 2%% of the steps)"
    )
    arguments = parser.parse_args()
    # File names may contain any bytes.
    sys.stdout.reconfigure(errors="surrogateescape")
    try:
        if arguments.png is not None and (arguments.png.is_dir() or arguments.png.suffix == ".jsonl"):
            raise ReportError(f"{arguments.png} is a run: pass an image file, e.g. loss.png.")
        runs = read_runs(arguments.runs)
        for run in runs:
            for sentence in run.damage:
                print(f"report.py: warning: {run.folder}: {sentence}", file=sys.stderr)
        if arguments.png is not None:
            write(arguments.png, lambda file: draw_into(file, runs, arguments))
        if arguments.output is not None or arguments.png is None:
            text = page_of(runs)
            write(
                arguments.output or default_output(runs),
                lambda file: file.write_text(text, encoding="utf-8", errors="replace"),
            )
    except ReportError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    return 0


def draw_into(file: Path, runs: list[Run], arguments: argparse.Namespace) -> None:
    from run_report.picture import draw  # importing matplotlib takes a second

    try:
        draw(runs, file, arguments.title, arguments.smoothing)
    except ValueError as error:
        raise ReportError(f"{arguments.png} has an unsupported extension: use .png, .svg or .pdf.") from error


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """Writes the file atomically and prints its path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            fill(file)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}; use a different path.") from error
    print(path)


def default_output(runs: list[Run]) -> Path:
    """Reports of comparisons and other .jsonl files get distinct names, so they do not overwrite the run's report."""
    if len(runs) > 1:
        return Path("compared.html")
    name = "report" if runs[0].file == "metrics.jsonl" else f"report-{Path(runs[0].file).stem}"
    return runs[0].folder / f"{name}.html"


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
