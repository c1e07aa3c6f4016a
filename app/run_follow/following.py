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

FACTS = (
    "version",
    "model_type",
    "parameters",
    "devices",
    "world_size",
    "job",
)  # keys of a start event that are not settings
RUN_ID = re.compile(r"[0-9a-f]{16}")


class FollowError(Exception):
    """A user error; the message is one sentence."""


def unusable(path: Path, what: str, error: OSError) -> FollowError:
    return FollowError(f"{path} cannot be {what}: {error.strerror}; pass a different --logdir.")


@dataclass(frozen=True)
class Row:
    """The metrics of one step."""

    run_id: str
    step: int
    time: float  # Unix time in seconds; 0: unknown
    values: dict[str, float]  # finite values, by metric
    digest: bytes  # 8-byte digest of the line


class Follower(JsonLines):
    """Yields the steps of a metrics file as they are written."""

    def new_rows(self) -> Iterator[Row]:
        """Yields the steps since the last call; see new_objects(). Raises: FollowError"""
        try:
            for number, fields in self.new_objects():
                if (row := row_of(fields, self.line)) is not None:
                    yield row
                elif is_whole(fields.get("step")) and "event" not in fields:
                    raise FollowError(
                        f"{self.path} line {number} has no run id (16 hexadecimal digits): pass a metrics file."
                    )
        except NotReadable as error:
            raise FollowError(f"{error}: pass the run's folder or its metrics file.") from error


class Sink:
    """Destination of metrics. The constructor does not begin a run. Raises: SinkMissing"""

    most_unsaved = 1
    """Number of steps between saves of the forwarding state. After a crash, steps since the last save are repeated."""
    target: str
    """Description of the destination."""
    metrics: Path | None = None
    """The metrics file."""

    def begin(self, run_id: str, first_step: int) -> None:
        """Begins a run; subsequent steps belong to it. Discards the run's existing steps from `first_step` on."""

    def write(self, row: Row) -> None:
        raise NotImplementedError

    def rewind(self, step: int) -> None:
        """Discards the run's steps from `step` on, because the run resumed from an older checkpoint."""

    def flush(self) -> None: ...
    def close(self) -> None:
        """Ends the run, if one has begun."""


def start_of(metrics: Path | None, run_id: str) -> tuple[str, dict[str, object]]:
    """Returns the run's name, formed from its model and folder, and the known settings of its last start."""
    if metrics is None:
        return run_id, {}
    start = last_start(metrics.parent / "events.jsonl", run_id)
    rows = start.get("settings") if isinstance(start.get("settings"), list) else []
    settings = {row[0]: row[1] for row in rows if isinstance(row, list) and len(row) == 3 and isinstance(row[0], str)}
    facts = {name: start[name] for name in FACTS if name in start}
    folder = metrics.resolve().parent.name
    return encodable(f"{facts['model_type']} {folder}" if "model_type" in facts else folder), facts | settings


def last_start(events: Path, run_id: str) -> dict:
    """Returns the run's last start event, or {} if there is none."""
    start: dict = {}
    with contextlib.suppress(NotReadable):
        for _, event in JsonLines(events).objects():
            if event.get("event") == "start" and event.get("run") == run_id:
                start = event
    return start


def encodable(name: str) -> str:
    """Replaces surrogates, which JSON can contain but UTF-8 cannot encode."""
    return name.encode("utf-8", "replace").decode("utf-8")


def row_of(fields: dict, line: bytes) -> Row | None:
    """Returns the step, or None if `fields` is not a step record. `line`: the line from which `fields` was parsed."""
    run_id = fields.get("run")
    # The id is used as a folder name.
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
