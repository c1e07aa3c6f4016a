"""Reads the newest checkpoint of a folder from the `latest` file."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from run_files.regular_files import NotReadable, read_text
from run_files.untrusted import printable

from requeue.log import warn


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint; step 0 means that none exists. `time`: modification time of the `latest` file (Unix time in
    seconds), which distinguishes two checkpoints of the same step."""

    step: int = 0
    time: str = "0"
    name: str = ""


def newest_checkpoint(folder: Path) -> Checkpoint:
    latest = folder / "latest"
    try:
        name = (read_text(latest) or "").strip()
        step = step_of(name)
        if step == 0:
            return Checkpoint()
        seconds, nanoseconds = divmod(latest.stat().st_mtime_ns, 10**9)
    except (NotReadable, OSError) as error:
        warn(f"{error}: assuming that no checkpoint exists.")
        return Checkpoint()
    return Checkpoint(step=step, time=f"{max(seconds, 0)}.{nanoseconds:09d}", name=printable(name, 300))


def step_of(name: str) -> int:
    """Returns the step in a checkpoint's name or folder, or 0 if there is none."""
    match = re.fullmatch(r".*-([0-9]{1,15})steps/*", name.strip())
    return int(match.group(1)) if match else 0


def requested_step(folder: str | None) -> int:
    """Returns the step in the name of the checkpoint in --resume_from_checkpoint, or 0 if there is none."""
    if folder is None or folder.lower() in ("none", "true", "false"):
        return 0
    with contextlib.suppress(NotReadable, OSError):
        return step_of(read_text(Path(folder) / "latest") or folder)
    return step_of(folder)
