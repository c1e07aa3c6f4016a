"""The JSON objects of a file with one in each line, of which a crash may have damaged some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from run_files.regular_files import LOG_BYTES, open_regular, unreadable
from run_files.values import object_of

MOST_LINE_BYTES = 1 << 24
MOST_NAMED = 8


class Damaged:
    """The numbers, from 1, of a file's lines that are no JSON objects."""

    def __init__(self) -> None:
        self.count = 0
        self._last = 0
        self._stretches: list[list[int]] = []  # first and last; the first MOST_NAMED

    def add(self, number: int) -> None:
        """Of a line after those before."""
        if number == self._last:  # the rest of a long one
            return
        self.count += 1
        if number == self._last + 1 and self._stretches:
            self._stretches[-1][1] = number
        elif len(self._stretches) <= MOST_NAMED:
            self._stretches.append([number, number])
        self._last = number

    def __str__(self) -> str:
        """ "3 damaged lines (2, 7-8)" """
        named = [str(first) if first == last else f"{first}-{last}" for first, last in self._stretches[:MOST_NAMED]]
        more = ", ..." if len(self._stretches) > MOST_NAMED else ""
        return f"{self.count} damaged {'line' if self.count == 1 else 'lines'} ({', '.join(named)}{more})"


def numbered_objects(path: Path, damaged: Damaged) -> Iterator[tuple[int, dict]]:
    """Each object with the number of its line. Lines that are none are added to `damaged`, but for a last one without
    an end, which the run may be writing.

    Raises: NotReadable; FileNotFoundError
    """
    with open_regular(path, LOG_BYTES) as file:
        number = 1
        while line := read_line(file, path):
            value = object_of(line)
            ends = line.endswith(b"\n")
            if value is not None:
                yield number, value
            elif ends or len(line) == MOST_LINE_BYTES:
                damaged.add(number)
            number += ends


def read_line(file, path: Path) -> bytes:
    """Of a longer line than MOST_LINE_BYTES so much of it. Raises: NotReadable"""
    try:
        return file.readline(MOST_LINE_BYTES)
    except OSError as error:
        raise unreadable(path, error) from error
