"""Reads JSON Lines files that a run appends to or replaces, and that a crash may have damaged."""

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


class JsonLines:
    """Reads complete lines of a file that a run appends to and, when it resumes, replaces."""

    def __init__(self, path: Path, most_bytes: int = LOG_BYTES):
        """`most_bytes`: if the file is larger, only its last `most_bytes` bytes are read, and line 1 is the first
        complete line in them."""
        self.path, self.most_bytes = path, most_bytes
        self.openings = 0  # number of times that the file was read from its beginning
        self.damaged = 0  # lines that are not JSON objects, since the file was last opened
        self.line = b""  # the last complete line
        self.rest = b""  # the beginning of an incomplete line
        self._file: BinaryIO | None = None
        self._lines = 0
        self._named: list[int] = []  # numbers (from 1) of the first damaged lines and of the last one

    def new_objects(self) -> Iterator[tuple[int, dict]]:
        """Yields each new object with its line number. If the file was replaced or truncated, yields all of its objects
        again. Yields nothing if the file is missing.

        Raises: NotReadable
        """
        if self._file is not None and self._was_replaced():
            if self._is_another_file():
                # Read the lines that were appended before the file was moved, so that no step is lost.
                yield from self._objects()
            self.close()
        if self._file is not None or self._opens():
            yield from self._objects()

    def damage(self) -> str:
        """ "FILE has 3 damaged lines (2, 7, 8), which are skipped." """
        named = ", ".join(map(str, self._named[:MOST_NAMED])) + ", ..." * (self.damaged > MOST_NAMED)
        lines = "1 damaged line" if self.damaged == 1 else f"{self.damaged} damaged lines"
        return f"{self.path.name} has {lines} ({named}), which are skipped."

    def objects(self) -> Iterator[tuple[int, dict]]:
        """Like new_objects(), but for a file that is read once: also yields an unterminated last line, if valid."""
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
                self._add_damaged(number)
            else:
                yield number, value

    def _add_damaged(self, number: int) -> None:
        if number not in self._named[-1:]:  # else: the rest of a long line
            self.damaged += 1
            self._named[MOST_NAMED:] = [number]

    def _opens(self) -> bool:
        try:
            self._file = open_regular(self.path, LOG_BYTES)
        except FileNotFoundError:  # not created yet
            return False
        self.openings += 1
        self._lines, self.damaged, self._named, self.line, self.rest = 0, 0, [], b"", b""
        if (more := os.fstat(self._file.fileno()).st_size - self.most_bytes) > 0:
            self._file.seek(more - 1)
            self._read()  # skip the rest of a line whose beginning was not read
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
        """Returns True if the file was replaced or its most recently read content has changed."""
        read = self.line + self.rest
        try:
            self.path.stat()
            last = os.pread(self._file.fileno(), len(read), self._file.tell() - len(read))
        except FileNotFoundError:
            return False  # moved away: a new file may follow
        except OSError:
            return True
        return self._is_another_file() or last != read
