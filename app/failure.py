#!/usr/bin/env python3
"""Finds the rank and host that caused a failure from failures/START in the checkpoint folder, and writes failure.json.

mpzero failure checkpoints                report the last failure, even if later attempts did not fail
mpzero failure checkpoints --status 143   report the latest attempt, given the launcher's exit status; print the
                                          run's exit status and exit with it

The launch scripts run this program after a failure. It also reads failures/START in MPZERO_LOG_DIR, LOG_DIR, TMPDIR
and /tmp, to which ranks write if the checkpoint folder is not writable.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from run_failure.evidence import ENDS
from run_failure.merging import USER_ERROR, judge, last_failure, remove_old_starts, settle, starts_of
from run_files.utf8 import restart_in_utf8


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="mpzero failure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the run's --checkpoint_dir")
    parser.add_argument("--status", type=int, help="exit status of the launcher")
    parser.add_argument("--launch", help="MPZERO_LAUNCH of the attempt (default: the latest attempt)")
    parser.add_argument("--wait", type=float, default=0, help="seconds to wait for reports from other hosts")
    arguments = parser.parse_args()
    folder, status = arguments.folder, arguments.status
    if status is not None:
        until = 0 if status in ENDS else time.monotonic() + arguments.wait
        failure = judge(folder, until, launch=arguments.launch or None)
        remove_old_starts(folder)
        status = failure.status(status) if failure else status
        print(status)
        return status
    if failure := last_failure(folder):
        settle(folder, failure, show=True)
    if failure is None and not folder.is_dir():
        print(f"mpzero: error: {folder} is not a folder: pass the run's --checkpoint_dir.", file=sys.stderr)
        return USER_ERROR
    if failure is None:
        print(f"mpzero: {folder / 'failures'} contains no evidence of a failure.", file=sys.stderr)
    elif failure.verdict.user_error:
        print(f"mpzero: error: {failure.verdict.reason.rstrip('.')}.", file=sys.stderr)
    if failure and (latest := starts_of(folder)[-1]) != failure.evidence.start:
        start = failure.evidence.start
        said = f"mpzero: this failure is from attempt {start}; the latest attempt, {latest}, did not fail."
        print(said, file=sys.stderr)
    return 0


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
