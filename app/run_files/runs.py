"""Finds the runs in a folder."""

from __future__ import annotations

import re
from pathlib import Path

MOVED = re.compile(r"old-[0-9]+")
SHOWN = 8


def runs_in(path: Path) -> list[Path]:
    """Returns the folders of all runs in `path`, or `path` itself if it is a run. Skips runs moved by --overwrite."""
    if not path.is_dir() or (path / "metrics.jsonl").exists():
        return [path]
    found = sorted(file.parent for file in path.rglob("metrics.jsonl"))
    return [run for run in found if not any(MOVED.fullmatch(part) for part in run.relative_to(path).parts)] or [path]


def choice(path: Path) -> str:
    """Returns a message that lists the runs in `path`, or "" if there are none."""
    runs = [str(run) for run in runs_in(path) if run != path]
    more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
    return f"{path} contains {len(runs)} runs: pass one of {', '.join(runs[:SHOWN])}{more}." if runs else ""
