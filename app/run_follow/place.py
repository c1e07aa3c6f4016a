"""How far a run has been passed on to one target."""

from __future__ import annotations

import os
from pathlib import Path

from run_files.regular_files import NotReadable, read_bytes

from run_follow.following import FollowError, Row

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
            raise FollowError(f"{error}: choose another folder with --logdir.") from error
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
            raise FollowError(
                f"{self.path} cannot be written: {error.strerror}; choose another folder with --logdir."
            ) from error
        self._saved = len(self._digests)

    def _cut(self, size: int) -> None:
        del self._digests[size:]
        self._saved = min(self._saved, size)


def unusable(path: Path, what: str, error: OSError) -> FollowError:
    return FollowError(f"{path} cannot be {what}: {error.strerror}; choose another folder with --logdir.")
