"""Reads the steps of a metrics file as they are written."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from run_files.json_lines import JsonLines
from run_files.regular_files import NotReadable
from run_files.values import as_number, as_time, is_whole

FACTS = ("version", "model_type", "parameters", "devices", "world_size", "job")  # of a start, besides its settings
RUN_ID = re.compile(r"[0-9a-f]{16}")


class FollowError(Exception):
    """A user error; the text is one sentence."""


def unusable(path: Path, what: str, error: OSError) -> FollowError:
    return FollowError(f"{path} cannot be {what}: {error.strerror}; use another folder with --logdir.")


@dataclass(frozen=True)
class Row:
    """A step."""

    run_id: str
    step: int
    time: float  # seconds since 1970; 0: not known
    values: dict[str, float]  # finite ones, by metric
    digest: bytes  # of the line, 8 bytes


class Follower(JsonLines):
    """The steps of a metrics file, as they are written."""

    def new_rows(self) -> Iterator[Row]:
        """The steps since the last call; see new_objects(). Raises: FollowError"""
        try:
            for number, fields in self.new_objects():
                if (row := row_of(fields, self.line)) is not None:
                    yield row
                elif is_whole(fields.get("step")) and "event" not in fields:
                    raise FollowError(
                        f"{self.path} line {number} has no run id (16 hexadecimal digits): give a file of mpzero train."
                    )
        except NotReadable as error:
            raise FollowError(f"{error}: give the run's folder or its metrics file.") from error


class Sink:
    """Where the steps of runs are passed on to. Making one starts no run there. Raises: SinkMissing"""

    most_unsaved = 1
    """After so many steps they are saved as passed on. A crash passes the unsaved ones on again."""
    target: str
    """In words: where one finds the runs."""
    metrics: Path | None = None
    """The file that is followed."""

    def begin(self, run_id: str, first_step: int) -> None:
        """The next steps are of this run. Former steps from `first_step` on are no longer part of it."""

    def write(self, row: Row) -> None:
        raise NotImplementedError

    def rewind(self, step: int) -> None:
        """The run has gone back: former steps from `step` on are no longer part of it."""

    def flush(self) -> None: ...
    def close(self) -> None:
        """Ends the run, where one has begun."""


def start_of(metrics: Path | None, run_id: str) -> tuple[str, dict[str, object]]:
    """-> the run's name, of its model and folder, and what it was last started with; both as far as they are known"""
    if metrics is None:
        return run_id, {}
    start: dict = {}
    with contextlib.suppress(NotReadable):
        for _, event in JsonLines(metrics.parent / "events.jsonl").objects():
            if event.get("event") == "start" and event.get("run") == run_id:
                start = event
    rows = start.get("settings") if isinstance(start.get("settings"), list) else []
    settings = {row[0]: row[1] for row in rows if isinstance(row, list) and len(row) == 3 and isinstance(row[0], str)}
    facts = {name: start[name] for name in FACTS if name in start}
    folder = metrics.resolve().parent.name
    return encodable(f"{facts['model_type']} {folder}" if "model_type" in facts else folder), facts | settings


def encodable(name: str) -> str:
    """JSON can name what UTF-8 cannot."""
    return name.encode("utf-8", "replace").decode("utf-8")


def row_of(fields: dict, line: bytes) -> Row | None:
    """None for what is no step of a run. `line`: of the fields."""
    run_id = fields.get("run")
    # It becomes the name of a folder.
    if not is_whole(fields.get("step")) or not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
        return None
    numbers = {name: as_number(value) for name, value in fields.items() if not isinstance(value, bool)}
    values = {encodable(name): value for name, value in numbers.items() if math.isfinite(value)}
    time = as_time(values.pop("time", None))
    del values["step"]
    return Row(
        run_id,
        fields["step"],
        time if math.isfinite(time) else 0.0,
        values,
        hashlib.blake2b(line, digest_size=8).digest(),
    )
