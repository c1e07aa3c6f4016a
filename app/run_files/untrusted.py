"""Validates text that other users may have written: JSON, names and printed text. For files, see
app/run_files/regular_files.py."""

from __future__ import annotations

import json
import re

MOST_CHARACTERS = 2000
# Names of hosts and of Slurm nodes.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def parse_json(text: str) -> object:
    """Raises ValueError if the text is not JSON, has a duplicate key, or is nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=distinct, parse_int=short_integer, parse_constant=no_number)
    except RecursionError as error:
        raise ValueError("objects are nested too deeply") from error


def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("duplicate key")
    return values


def short_integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("number too long")
    return int(digits)


def no_number(word: str) -> object:
    raise ValueError(f"{word} is not a number")


def printable(text: object, most: int = MOST_CHARACTERS) -> str:
    """Returns one line without control characters: replaces unprintable characters with "?" and truncates long text."""
    words = " ".join(str(text).split())
    line = "".join(character if character.isprintable() else "?" for character in words)
    return line if len(line) <= most else f"{line[: most - 3]}..."
