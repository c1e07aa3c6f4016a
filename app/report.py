#!/usr/bin/env python3
"""Writes one HTML page about a run, or about several runs compared: settings, curves, where the time went, memory,
checkpoints, starts and warnings. The page needs no network and no server.

report.py checkpoints
report.py checkpoints/a checkpoints/b --output compared.html
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from run_files.replacing import replacing
from run_files.utf8 import restart_in_utf8
from run_report.page import page_of
from run_report.reading import ReportError, Run, read_runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's --checkpoint_dir or --metrics_file")
    parser.add_argument(
        "--output",
        type=Path,
        help="the page; default: report.html next to metrics.jsonl, report-NAME.html next to another NAME.jsonl, "
        "compared.html here for several runs",
    )
    arguments = parser.parse_args()
    # Names of files may be any bytes.
    sys.stdout.reconfigure(errors="surrogateescape")
    try:
        runs = read_runs(arguments.runs)
        for run in runs:
            for sentence in run.damage:
                print(f"report.py: warning: {run.folder}: {sentence}", file=sys.stderr)
        output = arguments.output or default_output(runs)
        write(output, page_of(runs))
    except ReportError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    print(output)
    return 0


def write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}; choose another place with --output.") from error


def default_output(runs: list[Run]) -> Path:
    """A run's own report is not replaced by a comparison, or by that of an older file next to it."""
    if len(runs) > 1:
        return Path("compared.html")
    name = "report" if runs[0].file == "metrics.jsonl" else f"report-{Path(runs[0].file).stem}"
    return runs[0].folder / f"{name}.html"


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
