"""Passes the steps of a metrics file on to a sink, each once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from run_files.regular_files import NotReadable, read_bytes

from run_follow.following import Follower, FollowError, Row, Sink, unusable

DIGEST_BYTES = 8
MOST_BYTES = 1 << 30


class Place:
    """The digests of the lines that have been passed on, in their order, kept in a file: 8 bytes for each line.

    A run that resumes makes steps again, and its file then has other lines from there on. Which lines those are is seen
    by their content, which depends on no clock.
    """

    def __init__(self, path: Path):
        self.path = path
        self._digests = bytearray()
        self._saved = 0  # of these bytes, in the file
        try:
            self._digests += read_bytes(path, MOST_BYTES, follow=False) or b""
        except NotReadable as error:
            raise FollowError(f"{error}: use another folder with --logdir.") from error
        self._saved = len(self._digests)
        self._cut(len(self) * DIGEST_BYTES)  # a line that a crash has cut

    def __len__(self) -> int:
        """Lines that have been passed on."""
        return len(self._digests) // DIGEST_BYTES

    def has(self, index: int, row: Row) -> bool:
        """Whether the run's line `index` (from 0) has been passed on as it is now."""
        begin = index * DIGEST_BYTES
        return self._digests[begin : begin + DIGEST_BYTES] == row.digest

    def passed(self, index: int, row: Row) -> None:
        """Line `index` has been passed on. Former lines from `index` on are no longer part of the run."""
        self._cut(index * DIGEST_BYTES)
        self._digests += row.digest

    def save(self) -> None:
        if self._saved == len(self._digests):
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Nothing that has come there since it was read is written through, or waited for.
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self.path, flags, 0o666)
            with open(descriptor, "wb") as file:
                file.truncate(self._saved)
                file.seek(self._saved)
                file.write(self._digests[self._saved :])
        except OSError as error:
            raise unusable(self.path, "written", error) from error
        self._saved = len(self._digests)

    def _cut(self, size: int) -> None:
        del self._digests[size:]
        self._saved = min(self._saved, size)


class Pump:
    """From a file to a sink. The files of the places are in `folder`."""

    def __init__(self, follower: Follower, sink: Sink, folder: Path):
        self.follower, self.sink, self.folder = follower, sink, folder
        self.run_id = ""  # that the sink has begun
        self.passed = 0  # steps, since the start
        self.last_step = 0  # of those
        self._places: dict[str, Place] = {}
        self._lines: dict[str, int] = {}  # of each run that have been read since the file was opened
        self._opening = 0
        self._unsaved = 0  # steps that are passed on, and not saved as such

    def pass_on(self) -> None:
        """What is new in the file. Each step that the sink has got is also kept."""
        for row in self.follower.new_rows():
            if self._opening != self.follower.openings:
                self._opening, self._lines = self.follower.openings, {}
            index = self._lines.get(row.run_id, 0)
            self._lines[row.run_id] = index + 1
            place = self._place(row.run_id)
            if not place.has(index, row):
                self._pass_row(row, index, place)
                if self._unsaved >= self.sink.most_unsaved:
                    self.save()
        self.save()

    def save(self) -> None:
        self._unsaved = 0
        self.sink.flush()
        for place in self._places.values():
            place.save()

    def _pass_row(self, row: Row, index: int, place: Place) -> None:
        if row.run_id != self.run_id:
            self.sink.begin(row.run_id, row.step)
            self.run_id = row.run_id
        elif index < len(place):
            self.sink.rewind(row.step)
        self.sink.write(row)
        place.passed(index, row)
        self._unsaved += 1
        self.passed, self.last_step = self.passed + 1, row.step

    def _place(self, run_id: str) -> Place:
        """Of this run and target: one folder can serve several projects."""
        if run_id not in self._places:
            target = hashlib.blake2b(os.fsencode(self.sink.target), digest_size=4).hexdigest()
            self._places[run_id] = Place(self.folder / run_id / f"passed-on.{target}")
        return self._places[run_id]
