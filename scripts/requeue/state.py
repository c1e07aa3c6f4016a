"""Stores the state of a Slurm job across its starts in CHECKPOINT_DIR/restarts.JOB.txt, as one JSON object.

Each job has its own file, which a second job in the same folder does not change.
Other users may write to the folder: the type, format and size of each value are checked, and a file with any other
content is considered damaged.
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

# Version of the JSON object; incremented by incompatible changes.
VERSION = 3
# Maximum number of records in a folder.
MOST_RECORDS = 100
LARGEST = 10**15
MOST_NODES = 10_000
# A task of a job array is ARRAY_TASK.
JOB = re.compile(r"(0|[1-9][0-9]{0,14})(_(0|[1-9][0-9]{0,8}))?")
TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


@dataclass(frozen=True)
class State:
    """The state at the job's latest start."""

    job: str  # Slurm's job id; empty: unknown
    failures: int = 0  # failed runs since the job last made progress
    refusals: int = 0  # starts that ended because a host was rejected, since the job last made progress
    unsaved_starts: int = 0  # consecutive starts that saved no checkpoint
    last_run_failed: bool = False  # True if the last run that has ended failed
    blamed_nodes: tuple[str, ...] = ()  # nodes to which `failures` are attributed
    running: bool = False  # the last start recorded no end: it is running, or Slurm killed it
    start_step: int = 0  # the step from which the last start resumed
    checkpoint_time: str = "0"  # Checkpoint.time of the newest checkpoint at that start
    has_saved: bool = False  # True if the job has saved a checkpoint since its submission
    furthest_step: int = 0  # latest step of this job's checkpoints; a checkpoint of a later step is progress
    waits: int = 0  # consecutive waits because of a failed shared resource


class Damaged(Exception):
    """The message describes the problem with a record, without a final period."""


def parse_state(text: str) -> State:
    """Raises Damaged."""
    try:
        values = parse_json(text)
    except ValueError as error:
        raise Damaged(f"it is not JSON: {printable(error, 60)}") from error
    if not isinstance(values, dict):
        raise Damaged("it is not a JSON object")
    version = values.pop("version", None)
    if version != VERSION:
        raise Damaged(f"its version is '{printable(version, 60)}', expected {VERSION}")
    for name in values.keys() ^ {field.name for field in fields(State)}:
        raise Damaged(f"the key '{printable(name, 60)}' is missing or unknown")
    for field in fields(State):
        if not CHECKS[field.name if field.type == "str" else field.type](values[field.name]):
            raise Damaged(f"invalid {field.name}: '{printable(values[field.name], 60)}'")
    return State(**{**values, "blamed_nodes": tuple(values["blamed_nodes"])})


def format_state(state: State) -> str:
    return json.dumps({"version": VERSION, **asdict(state)}) + "\n"


def is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def is_list_of_nodes(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MOST_NODES and all(matches(NAME)(name) for name in value)


def matches(form: re.Pattern):
    return lambda value: isinstance(value, str) and form.fullmatch(value) is not None


# By type or, for text, by name.
CHECKS = {
    "int": is_number,
    "bool": lambda value: type(value) is bool,
    "tuple[str, ...]": is_list_of_nodes,
    "job": matches(JOB),
    "checkpoint_time": matches(TIME),
}


def record_of(folder: Path, job: str) -> Path:
    return folder / f"restarts.{job}.txt"


def load_state(folder: Path, job: str) -> State:
    """Returns the state at the job's latest start; an empty State if the record is missing or damaged."""
    path = record_of(folder, job)
    try:
        text = read_text(path, follow=False)
        return State(job="") if text is None else parse_state(text)
    except NotReadable as error:
        warn(f"{error}: the count of this job's restarts is reset.")
    except Damaged as error:
        warn(
            f"{path} is damaged ({error}): the count of restarts is reset. Check which other programs write to "
            "this folder."
        )
    return State(job="")


def remove_oldest(folder: Path) -> None:
    """Keeps only the newest MOST_RECORDS records, because a job removes its record only when its run has finished."""
    with contextlib.suppress(OSError):
        names = [path for path in folder.iterdir() if re.fullmatch(rf"restarts\.({JOB.pattern})\.txt", path.name)]
        names.sort(key=lambda path: path.lstat().st_mtime_ns)
        for path in names[: max(len(names) - MOST_RECORDS, 0)]:
            path.unlink()


def save_state(path: Path, state: State) -> None:
    """Raises OSError."""
    replace_text(path, format_state(state))
