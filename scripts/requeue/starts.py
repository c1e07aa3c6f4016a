"""Counts consecutive starts of a Kubernetes job without a checkpoint, and records whether the job has saved any.

    requeue pod --record FILE --newest TEXT --max_restarts N [--begins_anew]

A JobSet counts its starts but not its checkpoints. FILE is CHECKPOINT_DIR/starts.JOB.txt, one line: the number of
consecutive starts that saved no checkpoint, "saved" or "unsaved", and the newest checkpoint at the latest start (TEXT
of that start, "none" without a checkpoint). The answer has the format of command.py, on file descriptor 3.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from run_files.regular_files import NotReadable, read_text
from run_files.replacing import replace_text

from requeue.command import answer
from requeue.log import counted, error, say, warn
from requeue.state import Damaged
from requeue.table import USER_ERROR

GIVES_UP = 77  # exit status: a further start would not save a checkpoint either
NONE = "none"
LINE = re.compile(r"([0-9]{1,6}) (saved|unsaved) ([^\s]{1,400})\n?")


@dataclass(frozen=True)
class Starts:
    unsaved: int = 0  # consecutive starts without a checkpoint
    has_saved: bool = False
    newest: str = ""  # newest checkpoint at the latest start; empty: no start yet


def load_starts(path: Path) -> Starts:
    """Raises: Damaged"""
    try:
        text = read_text(path, follow=False)
    except NotReadable as reason:
        raise Damaged(f"{reason}") from reason
    if text is None:
        return Starts()
    match = LINE.fullmatch(text)
    if match is None:
        raise Damaged(f"{path} is damaged")
    return Starts(int(match.group(1)), match.group(2) == "saved", match.group(3))


def begin(path: Path, newest: str, max_restarts: int, begins_anew: bool) -> str:
    """Counts a start. Returns the answer."""
    try:
        starts = load_starts(path)
    except Damaged as reason:
        if begins_anew and newest != NONE:
            error(
                f"{reason}: a new start with --resume_from_checkpoint or --overwrite could discard checkpoints of this "
                "job; remove that file and start the job without these flags to resume from the last "
                "checkpoint."
            )
            return f"exit {USER_ERROR}"
        warn(f"{reason}: the count of this job's starts is reset. Check which other programs write to this folder.")
        starts = Starts()
    if starts.newest not in ("", newest):
        starts = Starts(has_saved=True)
    if starts.unsaved > max_restarts:
        warn(
            f"This job has started {counted(starts.unsaved, 'time')} in a row without saving a checkpoint "
            f"(MAX_RESTARTS is {max_restarts}): the job fails. Save more often (CHECKPOINT_FREQ), or find the cause "
            f"with 'kubectl describe'; the count is in {path}."
        )
        return f"exit {GIVES_UP}"
    try:
        saved = "saved" if starts.has_saved else "unsaved"
        replace_text(path, f"{starts.unsaved + 1} {saved} {newest}\n")
    except OSError as reason:
        error(
            f"{path}, the count of this job's starts, cannot be written ({reason.strerror}); fix the permissions of "
            "CHECKPOINT_DIR, or remove that path."
        )
        return f"exit {USER_ERROR}"
    if starts.has_saved and begins_anew:
        say(
            "This job has saved a checkpoint: --resume_from_checkpoint and --overwrite are ignored, and the job "
            "resumes from its own checkpoint."
        )
        return "start own"
    return "start asked"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="requeue pod", allow_abbrev=False)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--newest", required=True)
    parser.add_argument("--max_restarts", type=int, required=True)
    parser.add_argument("--begins_anew", action="store_true", help="with --resume_from_checkpoint or --overwrite")
    arguments = parser.parse_args(words)
    answer(begin(arguments.record, arguments.newest, arguments.max_restarts, arguments.begins_anew))
    return 0
