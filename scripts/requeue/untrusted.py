"""Bytes that others may have written: files of a shared checkpoint folder, and text from them that is printed."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

MOST_BYTES = 1 << 20
MOST_CHARACTERS = 2000
# Names of hosts and of Slurm's nodes.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


class NotReadable(Exception):
    """Says in one sentence, without a full stop, why a file is not taken."""


def read(path: Path) -> str | None:
    """The text of a regular file of at most MOST_BYTES; None where there is none. Never waits for a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotReadable(f"{path} cannot be read ({error.strerror})") from error
    try:
        kind = os.fstat(descriptor)
        if not stat.S_ISREG(kind.st_mode):
            raise NotReadable(f"{path} is no regular file")
        if kind.st_size > MOST_BYTES:
            raise NotReadable(f"{path} has {kind.st_size} bytes, more than the {MOST_BYTES} that are looked at")
        return os.read(descriptor, MOST_BYTES).decode()
    except OSError as error:
        raise NotReadable(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise NotReadable(f"{path} is not UTF-8") from error
    finally:
        os.close(descriptor)


def parse_json(text: str) -> object:
    """Raises ValueError where this is no JSON, where an object has a key twice, or where it is nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=distinct, parse_int=short_integer, parse_constant=no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is there twice")
    return values


def short_integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a number is too long")
    return int(digits)


def no_number(word: str) -> object:
    raise ValueError(f"{word} is no number")


def printable(text: object, most: int = MOST_CHARACTERS) -> str:
    """One line that no terminal takes for a command: what cannot be printed becomes "?", and a long text is cut."""
    words = " ".join(str(text).split())
    line = "".join(character if character.isprintable() else "?" for character in words)
    return line if len(line) <= most else f"{line[: most - 3]}..."
