"""Writes lines to the job's log. Write errors (a full disk) do not affect the job."""

from __future__ import annotations

import contextlib
import sys

from run_files.untrusted import printable

# Maximum length of a line, which may contain a reason and a path.
MOST_CHARACTERS = 8000


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def say(text: str) -> None:
    write(sys.stdout, f"mpzero: {text}")


def warn(text: str) -> None:
    write(sys.stderr, f"mpzero: warning: {text}")


def error(text: str) -> None:
    write(sys.stderr, f"mpzero: error: {text}")


def write(stream, line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        line = printable(line, MOST_CHARACTERS)
        print(line.encode(stream.encoding, "replace").decode(stream.encoding), file=stream, flush=True)
