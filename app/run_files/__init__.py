"""Code shared by programs that read a run's files: file access, JSON values and metric names. Importing it replaces the
traceback of Ctrl-C by one line, also while a program imports its modules."""

import sys
from pathlib import Path


def report_uncaught(kind, error, trace) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print(f"{Path(sys.argv[0]).name}: interrupted.", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = report_uncaught
