"""Detects changes in the source files of a token file.

A fingerprint contains the number of files, their total size, a digest (XXH3, 128 bits) of their names, sizes and
content, and a digest of their file system status. If the status is unchanged, the files are not read again: writing or
replacing a file changes its status time (ctime), which programs cannot set. A second write within the same clock tick
may leave the status unchanged, so the status is recorded only for files that have not been written for SETTLED
nanoseconds.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import xxhash

from . import PrepareError, shown
from .streams import unreadable

SETTLED = 2_000_000_000  # ns; coarsest timestamp granularity of a file system
BLOCK = 4 << 20  # bytes
THREADS = 8  # a single stream does not saturate a parallel file system


@dataclass(frozen=True)
class File:
    path: Path
    name: str  # path relative to the dataset, with "/"
    size: int  # bytes


def digest_of(path: Path, length: int | None = None) -> str:
    """Returns the digest of the first `length` bytes; None: all bytes."""
    hashed, left = xxhash.xxh3_128(), float("inf") if length is None else length
    buffer = memoryview(bytearray(BLOCK))
    try:
        with open(path, "rb", buffering=0) as file:
            while left > 0 and (count := file.readinto(buffer[: int(min(BLOCK, left))])):
                hashed.update(buffer[:count])
                left -= count
    except OSError as error:
        raise unreadable(path, error) from error
    return hashed.hexdigest()


class Fingerprinter:
    """Computes the fingerprint of `files` while they are read in order."""

    def __init__(self, files: list[File]):
        self._files = files
        self._before = _statuses(files)
        self._parts: list[tuple[int | None, str]] = []

    def add(self, length: int | None, digest: str) -> None:
        """Adds the digest of the next file. `length`: number of bytes read; None: all bytes."""
        self._parts.append((length, digest))

    @property
    def num_read(self) -> int:
        return len(self._parts)

    def copies(self) -> list[tuple[File, File]]:
        """Returns (duplicate, original) pairs of files with identical content."""
        first: dict[tuple, File] = {}
        found = []
        for file, part in zip(self._files, self._parts, strict=False):
            original = first.setdefault((file.size, *part), file)
            if original is not file:
                found.append((file, original))
        return found

    def finish(self) -> dict:
        after = _statuses(self._files)
        now = time.time_ns()
        for file, before, status in zip(self._files, self._before, after, strict=True):
            if status != before or status[0] != file.size:
                raise PrepareError(
                    f"{shown(file.path)} changed while being read: stop the process that writes to it, and start again."
                )
        settled = all(now - max(times) >= SETTLED for _, *times, _ in after)
        length = self._parts[-1][0] if self._parts else None
        return {
            "files": len(self._files),
            "bytes": sum(file.size for file in self._files),
            "read_files": len(self._parts),
            "read_bytes_of_last": length,
            "digest": _digest(self._files, length, [digest for _, digest in self._parts]),
            "status": _status_digest(self._files, after) if settled else None,
        }


def is_unchanged(files: list[File], fingerprint: dict, read: bool = True) -> bool:
    """Returns True if the files are unchanged. Unless `read` is False, rereads them if their status differs or is not
    recorded."""
    if len(files) != fingerprint["files"] or sum(file.size for file in files) != fingerprint["bytes"]:
        return False
    if fingerprint["status"] is not None and fingerprint["status"] == _status_digest(files, _statuses(files)):
        return True
    if not read:
        return False
    first, length = files[: fingerprint["read_files"]], fingerprint["read_bytes_of_last"]
    lengths = [None] * (len(first) - 1) + [length] if first else []
    with ThreadPoolExecutor(THREADS) as pool:
        digests = list(pool.map(digest_of, (file.path for file in first), lengths))
    return _digest(files, length, digests) == fingerprint["digest"]


def _digest(files: list[File], length: int | None, digests: list[str]) -> str:
    return _hash([[(file.name, file.size) for file in files], length, digests])


def _statuses(files: list[File]) -> list[tuple[int, int, int, int]]:
    """Returns (size, mtime, ctime, inode) of each file. Opens the files: network file systems report the current status
    only for open files."""

    def status(file: File) -> tuple[int, int, int, int]:
        try:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(file.path, error) from error
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(status, files))


def _status_digest(files: list[File], statuses: Iterable[tuple]) -> str:
    return _hash([[file.name for file in files], list(statuses)])


def _hash(value: list) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(value).encode())
