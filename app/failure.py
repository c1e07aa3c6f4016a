#!/usr/bin/env python3
"""Finds the rank and host that caused a failure from failures/START in the checkpoint folder, and writes failure.json.

mpzero failure checkpoints                report the latest start
mpzero failure checkpoints --status 143   print and exit with the run's status, given the launcher's

The launch scripts run this program after a failure. It also reads failures/START in MPZERO_LOG_DIR, LOG_DIR, TMPDIR
and /tmp, to which ranks write if the checkpoint folder is not writable.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from run_failure.evidence import unread_files
from run_failure.merging import USER_ERROR, Failure, find_failure, newest_start, places_of, settle
from run_files.utf8 import restart_in_utf8

# File names that identify the checkpoint folder of a run.
RUN = frozenset((".lock", "latest", "metrics.jsonl", "failures", "failure.json", "stop.json"))
MOST_WARNINGS = 8


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="mpzero failure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the run's --checkpoint_dir")
    parser.add_argument("--status", type=int, help="exit status of the launcher")
    parser.add_argument(
        "--since", type=float, default=0, metavar="TIME", help="ignore starts before this Unix time (default: 0)"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=0,
        metavar="SECONDS",
        help="time to wait for delayed evidence on a network file system (default: 0)",
    )
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.wait
    start = newest_start(arguments.folder, arguments.since, until=until)
    failure = find_failure(arguments.folder, start, until) if start else None
    unread = unread_files(places_of(arguments.folder, start)) if start else []
    for reason in unread[:MOST_WARNINGS]:
        print(f"mpzero: warning: skipped evidence: {reason}.", file=sys.stderr)
    if len(unread) > MOST_WARNINGS:
        print(f"mpzero: warning: skipped {len(unread) - MOST_WARNINGS} more evidence files.", file=sys.stderr)
    if failure:
        settle(arguments.folder, failure, show=True)
    if arguments.status is None:
        return show(arguments.folder, start, failure)
    status = failure.status(arguments.status) if failure else arguments.status
    print(status)
    return status


def show(folder: Path, start: str | None, failure: Failure | None) -> int:
    """Prints the results that settle() does not print. -> the exit status"""
    if failure:
        if failure.verdict.user_error:
            print(f"mpzero: error: {failure.verdict.reason.rstrip('.')}.", file=sys.stderr)
        return 0
    try:
        is_of_run = start or not RUN.isdisjoint(os.listdir(folder))
    except OSError as error:
        print(f"mpzero: error: {folder} cannot be read: {error.strerror}.", file=sys.stderr)
        return USER_ERROR
    if not is_of_run:
        print(f"mpzero: error: {folder} contains no files of a run: pass the run's --checkpoint_dir.", file=sys.stderr)
        return USER_ERROR
    print(f"mpzero: {folder} has no evidence of a failure.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
