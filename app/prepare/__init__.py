"""The modules of app/prepare_data.py: sources of documents, encoding, and output files."""

from __future__ import annotations

import os
from pathlib import Path

import run_files  # noqa: F401 - no traceback on Ctrl-C

# How to replace an output, for messages. The launch scripts override this text.
OVERWRITE = os.environ.get("MPZERO_HOW_TO_OVERWRITE") or "--overwrite"


class PrepareError(Exception):
    """A user error; the message is one sentence with the error and the remedy."""


def shown(name: str | Path) -> str:
    """Formats a name for a message, on one line and without control characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(name))


def shown_size(size: int) -> str:
    """bytes -> "1.2 MB" """
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.1f} {unit}" if isinstance(size, float) else f"{size} {unit}"
        size = size / 1000
    return f"{size:,.1f} TB"


def shown_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
