"""What a Slurm job keeps from one start to the next: CHECKPOINT_DIR/restarts.JOB.txt, one JSON object.

Each job has its own file: a second job with the same folder, which mpzero refuses only later, changes nothing of it.
The file is in a folder that others may write to: each value is checked for its type, its form and its size, and a file
with anything else in it counts as damaged.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from run_files.regular_files import NotReadable, read_text
from run_files.replacing import replace_text
from run_files.untrusted import NAME, parse_json, printable

from requeue.log import warn

# Of the JSON object. A change that an older reader would misunderstand gets the next number.
VERSION = 3
# Records of so many jobs are kept in a folder.
MOST_RECORDS = 100
LARGEST = 10**15
MOST_NODES = 10_000
# A task of a job array is ARRAY_TASK.
JOB = re.compile(r"(0|[1-9][0-9]{0,14})(_(0|[1-9][0-9]{0,8}))?")
TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


@dataclass(frozen=True)
class State:
    """Of the job's newest start."""

    job: str  # Slurm's number; empty: not known
    failures: int = 0  # runs of this job that failed since its last progress
    refusals: int = 0  # starts since then that ended because a host was refused
    unsaved_starts: int = 0  # starts in a row that saved no checkpoint
    last_run_failed: bool = False  # the last run that ended
    blamed_nodes: tuple[str, ...] = ()  # nodes to which failures since then were attributed
    running: bool = False  # the last start has not said how it ended: it runs, or Slurm ended it without a signal
    start_step: int = 0  # the step from which the last start resumed
    checkpoint_time: str = "0"  # Checkpoint.time of the newest checkpoint at that start
    has_saved: bool = False  # a checkpoint, since the job was submitted
    furthest_step: int = 0  # of all checkpoints of this job: progress is a checkpoint of a later step
    waits: int = 0  # times in a row that it has waited since what its hosts share did not work


class Damaged(Exception):
    """What is wrong with a record, without a full stop."""


def parse_state(text: str) -> State:
    """Raises Damaged."""
    values = parse_object(text)
    for field in fields(State):
        if field.name not in values:
            raise Damaged(f"it has no {field.name}")
        if not CHECKS[field.name](values[field.name]):
            raise Damaged(f"its {field.name} is '{printable(values[field.name], 60)}'")
    values["blamed_nodes"] = tuple(values["blamed_nodes"])
    return State(**values)


def format_state(state: State) -> str:
    return json.dumps({"version": VERSION, **asdict(state)}) + "\n"


def is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def is_truth(value: object) -> bool:
    return type(value) is bool


def is_list_of_nodes(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MOST_NODES and all(matches(NAME)(name) for name in value)


def matches(form: re.Pattern):
    return lambda value: isinstance(value, str) and form.fullmatch(value) is not None


CHECKS = {
    "job": matches(JOB),
    "failures": is_number,
    "refusals": is_number,
    "unsaved_starts": is_number,
    "last_run_failed": is_truth,
    "blamed_nodes": is_list_of_nodes,
    "running": is_truth,
    "start_step": is_number,
    "checkpoint_time": matches(TIME),
    "has_saved": is_truth,
    "furthest_step": is_number,
    "waits": is_number,
}


def parse_object(text: str) -> dict[str, object]:
    try:
        values = parse_json(text)
    except ValueError as error:
        raise Damaged(f"it is no JSON: {printable(error, 60)}") from error
    if not isinstance(values, dict):
        raise Damaged("it is no JSON object")
    version = values.pop("version", None)
    if type(version) is not int or version != VERSION:
        raise Damaged(f"its version is '{printable(version, 60)}', and this mpzero reads version {VERSION}")
    for key in values:
        if key not in CHECKS:
            raise Damaged(f"'{printable(key, 60)}' is none of its keys")
    return values


def record_of(folder: Path, job: str) -> Path:
    return folder / f"restarts.{job}.txt"


def load_state(folder: Path, job: str) -> State:
    """Of the job's newest start; of no job where there is no record or it is damaged."""
    path = record_of(folder, job)
    try:
        text = read_text(path, follow=False)
        return State(job="") if text is None else parse_state(text)
    except NotReadable as error:
        warn(f"{error}: the restarts of this job are counted anew.")
    except Damaged as error:
        warn(
            f"{path} is not as a job leaves it ({error}): its restarts are counted anew. Look at who else writes to "
            "this folder."
        )
    return State(job="")


def remove_oldest(folder: Path) -> None:
    """Leaves the newest MOST_RECORDS: the job that a record is of removes it only when its run has finished."""
    with contextlib.suppress(OSError):
        names = [path for path in folder.iterdir() if re.fullmatch(rf"restarts\.({JOB.pattern})\.txt", path.name)]
        names.sort(key=lambda path: path.lstat().st_mtime_ns)
        for path in names[: max(len(names) - MOST_RECORDS, 0)]:
            path.unlink()


def save_state(path: Path, state: State) -> None:
    """Raises OSError."""
    replace_text(path, format_state(state))
