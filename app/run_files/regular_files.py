"""Reads files that other users may have written: only regular files of limited size, opened without blocking."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

SMALL_BYTES = 1 << 20  # limit for records and reports
LOG_BYTES = 1 << 36  # limit for files with one line per step


class NotReadable(Exception):
    """The message states the file and the reason in one sentence without a final period."""


def open_regular(path: Path, most: int, follow: bool = True) -> BinaryIO:
    """`follow`: if False, refuses symbolic links, which could redirect reads if other users can write to the folder.

    Raises: NotReadable; FileNotFoundError
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        file = os.fdopen(os.open(path, flags), "rb")
    except FileNotFoundError:
        raise
    except IsADirectoryError as error:
        raise NotReadable(f"{path} is a folder, not a regular file") from error
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise NotReadable(f"{path} is a symbolic link") from error
        raise unreadable(path, error) from error
    kind = os.fstat(file.fileno())
    if stat.S_ISREG(kind.st_mode) and kind.st_size <= most:
        return file
    file.close()
    if not stat.S_ISREG(kind.st_mode):
        raise NotReadable(f"{path} is not a regular file")
    raise NotReadable(f"{path} has {kind.st_size} bytes, more than the limit of {most}")


def read_bytes(path: Path, most: int = SMALL_BYTES, follow: bool = True) -> bytes | None:
    """Returns None if the file does not exist. Raises: NotReadable"""
    try:
        with open_regular(path, most, follow) as file:
            content = bytearray()
            while len(content) <= most and (chunk := file.read(SMALL_BYTES)):
                content += chunk
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    if len(content) > most:  # the file has grown, or is in /proc
        raise NotReadable(f"{path} has more than the limit of {most} bytes")
    return bytes(content)


def read_text(path: Path, most: int = SMALL_BYTES, follow: bool = True) -> str | None:
    """Returns the UTF-8 text, or None if the file does not exist. Raises: NotReadable"""
    content = read_bytes(path, most, follow)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError as error:
        raise NotReadable(f"{path} is not UTF-8") from error


def unreadable(path: Path, error: OSError) -> NotReadable:
    return NotReadable(f"{path} cannot be read ({error.strerror})")
