#!/usr/bin/env python3
"""Names who is to blame for a run that failed: reads failures/START of its checkpoint folder, writes failure.json.

mpzero failure checkpoints                the newest start
mpzero failure checkpoints --status 143   prints, and ends with, the status of a run whose launcher ended with 143

`mpzero failure` starts this program, and so do the scripts after a run that failed. Ranks that cannot write to the
folder write to failures/START of MPZERO_LOG_DIR, LOG_DIR, TMPDIR or /tmp, which are read, too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from run_failure.merging import find_failure, newest_start, settle
from run_files.utf8 import restart_in_utf8


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="mpzero failure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the run's --checkpoint_dir")
    parser.add_argument("--status", type=int, help="the exit status of the launcher")
    parser.add_argument(
        "--since", type=float, default=0, metavar="TIME", help="only a start after this time (date +%%s)"
    )
    parser.add_argument(
        "--wait", type=float, default=0, metavar="SECONDS", help="for evidence that a file system delays"
    )
    arguments = parser.parse_args()
    start = newest_start(arguments.folder, arguments.since)
    failure = find_failure(arguments.folder, start, arguments.wait) if start else None
    if failure:
        settle(arguments.folder, failure, show=True)
    elif arguments.status is None:
        print(f"mpzero: {arguments.folder} has no evidence of a failure.", file=sys.stderr)
    if arguments.status is None:
        return 0
    status = failure.status(arguments.status) if failure else arguments.status
    print(status)
    return status


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
