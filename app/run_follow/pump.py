"""Forwards each step of a metrics file to a sink once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from run_files.regular_files import NotReadable, read_bytes

from run_follow.following import Follower, FollowError, Row, Sink, unusable

DIGEST_BYTES = 8
MOST_BYTES = 1 << 30


class Place:
    """Digests of the forwarded lines in order, stored in a file with 8 bytes per line.

    A resumed run repeats steps and replaces their lines. Lines are identified by content, which does not depend on
    clocks.
    """

    def __init__(self, path: Path):
        self.path = path
        self._digests = bytearray()
        self._saved = 0  # number of digest bytes in the file
        try:
            self._digests += read_bytes(path, MOST_BYTES, follow=False) or b""
        except NotReadable as error:
            raise FollowError(f"{error}: pass a different --logdir.") from error
        self._saved = len(self._digests)
        self._cut(len(self) * DIGEST_BYTES)  # drops a digest truncated by a crash

    def __len__(self) -> int:
        """Returns the number of forwarded lines."""
        return len(self._digests) // DIGEST_BYTES

    def has(self, index: int, row: Row) -> bool:
        """Returns True if the run's line `index` (from 0) was forwarded with its current content."""
        begin = index * DIGEST_BYTES
        return self._digests[begin : begin + DIGEST_BYTES] == row.digest

    def passed(self, index: int, row: Row) -> None:
        """Records that line `index` was forwarded, and discards existing records of this line and later lines."""
        self._cut(index * DIGEST_BYTES)
        self._digests += row.digest

    def save(self) -> None:
        if self._saved == len(self._digests):
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Do not follow a link or block on a FIFO that replaced the file after the read.
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
    """Forwards a metrics file to a sink. `folder` contains the digests."""

    def __init__(self, follower: Follower, sink: Sink, folder: Path):
        self.follower, self.sink, self.folder = follower, sink, folder
        self.run_id = ""  # run that the sink has begun
        self.passed = 0  # steps forwarded since the start
        self.last_step = 0  # last of the forwarded steps
        self._places: dict[str, Place] = {}
        self._lines: dict[str, int] = {}  # lines read since the file was opened, by run
        self._opening = 0
        self._unsaved = 0  # steps forwarded since the last save

    def pass_on(self) -> None:
        """Forwards the new steps of the file and saves the forwarding state."""
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
        """Returns this run's digests for the sink's target. A folder may contain digests for several targets."""
        if run_id not in self._places:
            target = hashlib.blake2b(os.fsencode(self.sink.target), digest_size=4).hexdigest()
            self._places[run_id] = Place(self.folder / run_id / f"passed-on.{target}")
        return self._places[run_id]
