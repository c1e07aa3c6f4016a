"""Code shared by programs that read a run's files: file access, JSON values and metric names. Importing it replaces the
tracebacks of Ctrl-C and of a missing package with one line each, even while a program imports its other modules."""

import sys
from pathlib import Path


def report_uncaught(kind, error, trace) -> None:
    program = Path(sys.argv[0]).name
    if issubclass(kind, KeyboardInterrupt):
        print(f"{program}: interrupted.", file=sys.stderr)
    elif issubclass(kind, ModuleNotFoundError) and Path(sys.prefix).name != ".venv":
        print(f"{program}: {sys.executable} has no package {error.name}: use .venv/bin/python.", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = report_uncaught
