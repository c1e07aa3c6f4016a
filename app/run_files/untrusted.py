"""Text that others may have written: JSON, names, and what is printed. Files: app/run_files/regular_files.py."""

from __future__ import annotations

import json
import re

MOST_CHARACTERS = 2000
# Names of hosts and of Slurm's nodes.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


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
