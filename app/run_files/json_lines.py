"""The one reader of files with a JSON object in each line: runs append to and replace them, crashes damage them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

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


class JsonLines:
    """The complete lines of a file that another process appends to, and replaces where a run resumes."""

    def __init__(self, path: Path, most_bytes: int = LOG_BYTES):
        """`most_bytes`: of a longer file the end is read. Its lines are counted from there."""
        self.path, self.most_bytes = path, most_bytes
        self.openings = 0  # one more each time that the file is read from its beginning
        self.damaged = Damaged()  # since then
        self.line = b""  # the last complete one
        self.rest = b""  # the beginning of one that is not complete
        self._file: BinaryIO | None = None
        self._lines = 0

    def new_objects(self) -> Iterator[tuple[int, dict]]:
        """Each object since the last call, with the number of its line. Once the file has been replaced or cut, all of
        it comes again. A file that does not exist has none.

        Raises: NotReadable
        """
        if self._file is not None and self._was_replaced():
            if self._is_another_file():
                # What the old one has got since the last call: a run that is moved aside loses no step.
                yield from self._objects()
            self.close()
        if self._file is not None or self._opens():
            yield from self._objects()

    def objects(self) -> Iterator[tuple[int, dict]]:
        """As new_objects(), of a file that is read once: a last line that lacks its end counts if it is an object."""
        yield from self.new_objects()
        if (value := object_of(self.rest)) is not None:
            yield self._lines + 1, value
        self.close()

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None

    def _objects(self) -> Iterator[tuple[int, dict]]:
        while chunk := self._read():
            self.rest += chunk
            ends = self.rest.endswith(b"\n")
            if not ends and len(self.rest) < MOST_LINE_BYTES:
                return
            self.line, self.rest = self.rest, b""
            self._lines += ends
            number = self._lines + (not ends)
            if (value := object_of(self.line)) is None:
                self.damaged.add(number)
            else:
                yield number, value

    def _opens(self) -> bool:
        try:
            self._file = open_regular(self.path, LOG_BYTES)
        except FileNotFoundError:  # not yet
            return False
        self.openings += 1
        self._lines, self.damaged, self.line, self.rest = 0, Damaged(), b"", b""
        if (more := os.fstat(self._file.fileno()).st_size - self.most_bytes) > 0:
            self._file.seek(more - 1)
            self._read()  # the end of a line whose beginning is not read
        return True

    def _read(self) -> bytes:
        try:
            return self._file.readline(MOST_LINE_BYTES - len(self.rest))
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _is_another_file(self) -> bool:
        try:
            opened, now = os.fstat(self._file.fileno()), self.path.stat()
        except OSError:
            return False
        return (now.st_ino, now.st_dev) != (opened.st_ino, opened.st_dev)

    def _was_replaced(self) -> bool:
        """By another file, or by other content: what was read last is not there any more."""
        read = self.line + self.rest
        try:
            self.path.stat()
            last = os.pread(self._file.fileno(), len(read), self._file.tell() - len(read))
        except FileNotFoundError:
            return False  # moved away: there may be another one later
        except OSError:
            return True
        return self._is_another_file() or last != read
