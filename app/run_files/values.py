"""Validates JSON values from untrusted files."""

from __future__ import annotations

import json
import math

LARGEST_COUNT = 1 << 53
END_OF_TIME = 253_402_300_800  # the year 10000, which datetime does not support


def object_of(text: str | bytes) -> dict | None:
    """Returns the value if it is a JSON object, else None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def as_number(value: object) -> float:
    """Returns the value as a float; NaN if it is not a number or is too large."""
    try:
        return float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return math.nan


def as_time(value: object) -> float:
    """Returns a Unix time in seconds, before the year 10000; NaN for anything else."""
    seconds = as_number(value)
    return seconds if 0 <= seconds < END_OF_TIME else math.nan


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST_COUNT


def whole(value: object) -> int:
    """Returns the value if it is an integer, else 0."""
    return value if is_whole(value) else 0


def strings(value: object) -> list[str]:
    """Returns the elements of a list as strings; empty if the value is not a list."""
    return [str(element) for element in value] if isinstance(value, list) else []
