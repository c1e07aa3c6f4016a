"""Step time of each rank, excluding waits for other ranks, for steps logged with rank_seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from run_files.values import as_number

MOST_RANKS = 1 << 16
MOST_ROWS = 256
MOST_COLUMNS = 400


@dataclass
class RankTimes:
    places: list[int] = field(default_factory=list)  # indices of the steps among all steps of the run
    rows: list[np.ndarray] = field(default_factory=list)  # seconds by rank; NaN: invalid

    def add(self, place: int, value: object) -> None:
        """`value`: a line's rank_seconds, unchecked."""
        if not isinstance(value, list) or not 0 < len(value) <= MOST_RANKS:
            return
        known = value if set(map(type, value)) == {float} else [as_number(element) for element in value]
        seconds = np.array(known, dtype=np.float32)
        self.places.append(place)
        self.rows.append(np.where(np.isfinite(seconds), seconds, np.nan))


@dataclass(frozen=True)
class HeatMap:
    places: np.ndarray  # step index of each column, in ascending order of steps
    ranks: list[str]  # labels of the rows: "7", or "0-3" if several share a row
    seconds: np.ndarray  # [rows, columns], maximum of the values in each cell; NaN: none


def heat_map(times: RankTimes, step: np.ndarray) -> HeatMap | None:
    """Returns None for fewer than two ranks. `step`: step at each index; a repeated step replaces the earlier times."""
    ranks = max((len(row) for row in times.rows), default=0)
    if ranks < 2:
        return None
    newest = {float(step[place]): number for number, place in enumerate(times.places)}
    order = [newest[at] for at in sorted(newest)]
    seconds = np.full((ranks, len(order)), np.nan, dtype=np.float32)
    for column, number in enumerate(order):
        seconds[: len(times.rows[number]), column] = times.rows[number]
    if not np.isfinite(seconds).any():
        return None
    rows, columns = stretches(ranks, MOST_ROWS), stretches(len(order), MOST_COLUMNS)
    seconds = np.fmax.reduceat(np.fmax.reduceat(seconds, rows, axis=0), columns, axis=1)
    ends = [*rows[1:], ranks]
    labels = [str(begin) if end == begin + 1 else f"{begin}-{end - 1}" for begin, end in zip(rows, ends, strict=True)]
    return HeatMap(np.array(times.places)[order][columns], labels, seconds)


def stretches(count: int, most: int) -> np.ndarray:
    """Returns the starts of at most `most` intervals of nearly equal length."""
    pieces = min(count, most)
    return np.arange(pieces) * count // pieces
