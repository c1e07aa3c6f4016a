"""Reads the lines of a metrics file as they are written."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


class FollowError(Exception):
    """A user error; the text is one sentence."""


@dataclass(frozen=True)
class Row:
    """A step."""

    run_id: str
    step: int
    time: float  # seconds since 1970
    values: dict[str, float]  # finite ones, by metric


class Follower:
    """The complete lines of a file that another process appends to, and replaces where a run resumes."""

    def __init__(self, path: Path):
        self.path = path
        self.file: TextIO | None = None
        self.rest = ""  # a line that is not complete

    def new_rows(self) -> Iterator[Row]:
        """Those since the last call. Once the file has been replaced, all of it comes again."""
        if self.file is not None and self._was_replaced():
            self.file.close()
            self.file = None
        if self.file is None and not self._opens():
            return
        while chunk := self.file.readline():
            self.rest += chunk
            if not self.rest.endswith("\n"):
                return
            line, self.rest = self.rest, ""
            row = row_of(line)
            if row is not None:
                yield row

    def _opens(self) -> bool:
        self.rest = ""
        try:
            self.file = self.path.open(encoding="utf-8", errors="replace")
        except FileNotFoundError:  # not yet
            return False
        except OSError as error:
            raise FollowError(f"{self.path} cannot be read: {error.strerror}.") from error
        return True

    def _was_replaced(self) -> bool:
        opened = os.fstat(self.file.fileno())
        try:
            now = self.path.stat()
        except OSError:
            return False
        return (now.st_ino, now.st_dev) != (opened.st_ino, opened.st_dev) or now.st_size < self.file.tell()


def row_of(line: str) -> Row | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("step"), int):
        return None
    values = {name: float(value) for name, value in fields.items() if is_value(name, value)}
    return Row(str(fields.get("run", "")), fields["step"], float(values.pop("time", 0.0)), values)


def is_value(name: str, value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and name != "step" and math.isfinite(value)


class Place:
    """How far a file has been passed on, kept in a file of its own."""

    def __init__(self, path: Path):
        self.path = path
        self.run_id, self.step, self.time = "", 0, 0.0
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            saved = json.loads(path.read_text())
            self.run_id, self.step, self.time = str(saved["run"]), int(saved["step"]), float(saved["time"])

    def is_new(self, row: Row) -> bool:
        """A step that the run has made again, after it went back to a checkpoint, is later than the one before."""
        return row.run_id != self.run_id or row.time > self.time or (row.time == self.time and row.step > self.step)

    def passed(self, row: Row) -> None:
        self.run_id, self.step, self.time = row.run_id, row.step, row.time

    def save(self) -> None:
        if self.step == 0:
            return
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            temporary.write_text(json.dumps({"run": self.run_id, "step": self.step, "time": self.time}))
            os.replace(temporary, self.path)
        except OSError as error:
            raise FollowError(f"{self.path} cannot be written: {error.strerror}.") from error
