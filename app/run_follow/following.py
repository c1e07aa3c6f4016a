"""Reads the lines of a metrics file as they are written."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from run_files.json_lines import MOST_LINE_BYTES, Damaged
from run_files.regular_files import LOG_BYTES, NotReadable, open_regular
from run_files.values import as_number, as_time, is_whole, object_of

RUN_ID = re.compile(r"[0-9a-f]{16}")


class FollowError(Exception):
    """A user error; the text is one sentence."""


@dataclass(frozen=True)
class Row:
    """A step."""

    run_id: str
    step: int
    time: float  # seconds since 1970; 0: not known
    values: dict[str, float]  # finite ones, by metric
    digest: bytes  # of the line, 8 bytes


class Follower:
    """The complete lines of a file that another process appends to, and replaces where a run resumes."""

    def __init__(self, path: Path):
        self.path = path
        self.file: BinaryIO | None = None
        self.openings = 0  # one more each time that the file is read from its beginning
        self.lines = 0  # read since then
        self.damaged = Damaged()  # of these lines
        self._line = b""  # the last complete one
        self._rest = b""  # the beginning of one that is not complete

    def new_rows(self) -> Iterator[Row]:
        """The steps since the last call. Once the file has been replaced or cut, all of it comes again."""
        if self.file is not None and self._was_replaced():
            if self._is_another_file():
                # What the old one has got since the last call: a run that is moved aside loses no step.
                yield from self._rows()
            self.close()
        if self.file is None and not self._opens():
            return
        yield from self._rows()

    def _rows(self) -> Iterator[Row]:
        while chunk := self._read():
            self._rest += chunk
            ends = self._rest.endswith(b"\n")
            if not ends and len(self._rest) < MOST_LINE_BYTES:
                return
            self._line, self._rest = self._rest, b""
            self.lines += ends
            number = self.lines + (not ends)
            fields = object_of(self._line)
            if fields is None:
                self.damaged.add(number)
            elif (row := row_of(fields, self._line)) is not None:
                yield row
            elif is_whole(fields.get("step")) and "event" not in fields:
                raise FollowError(
                    f"{self.path} line {number} has no run id of 16 hexadecimal digits: give a file that mpzero train "
                    "has written."
                )

    def close(self) -> None:
        if self.file is not None:
            with contextlib.suppress(OSError):
                self.file.close()
        self.file = None

    def _opens(self) -> bool:
        try:
            self.file = open_regular(self.path, LOG_BYTES)
        except FileNotFoundError:  # not yet
            return False
        except NotReadable as error:
            raise FollowError(f"{error}: give the run's folder or its metrics file.") from error
        self.openings += 1
        self.lines, self.damaged, self._line, self._rest = 0, Damaged(), b"", b""
        return True

    def _read(self) -> bytes:
        try:
            return self.file.readline(MOST_LINE_BYTES - len(self._rest))
        except OSError as error:
            raise FollowError(f"{self.path} cannot be read: {error.strerror}.") from error

    def _is_another_file(self) -> bool:
        try:
            opened, now = os.fstat(self.file.fileno()), self.path.stat()
        except OSError:
            return False
        return (now.st_ino, now.st_dev) != (opened.st_ino, opened.st_dev)

    def _was_replaced(self) -> bool:
        """By another file, or by other content: what was read last is not there any more."""
        at = self.file.tell() - len(self._rest)
        try:
            self.path.stat()
            last = os.pread(self.file.fileno(), len(self._line + self._rest), at - len(self._line))
        except FileNotFoundError:
            return False  # moved away: there may be another one later
        except OSError:
            return True
        return self._is_another_file() or last != self._line + self._rest


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
