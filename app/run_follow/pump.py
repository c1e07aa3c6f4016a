"""Passes the steps of a metrics file on to a sink, each once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from run_follow.following import Follower, Row
from run_follow.place import Place
from run_follow.sinks import Sink


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
