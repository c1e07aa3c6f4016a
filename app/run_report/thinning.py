"""Downsamples a curve without visible change: keeps the minimum and maximum of each interval."""

from __future__ import annotations

import numpy as np

MOST_POINTS = 4000


def thinned(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """Returns the indices of the points to keep, in order: all points if there are at most `most`, else the first, the
    last, and the minimum and maximum of each interval. Drops NaN values."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known) <= most:
        return known
    stretches = most // 2 - 1
    edges = np.linspace(0, len(known), stretches + 1).astype(int)[:-1]
    of_known = values[known]
    # Sort by interval, then by value, to find the extremes of each interval.
    stretch = np.searchsorted(edges, np.arange(len(known)), side="right") - 1
    order = np.lexsort((of_known, stretch))
    ends = np.append(edges[1:], len(known))
    places = np.concatenate([[0, len(known) - 1], order[edges], order[ends - 1]])
    return known[np.unique(places)]


def smooth(values: np.ndarray, width: int) -> np.ndarray:
    """Returns the centered mean over `width` (odd) values, or over fewer values at the ends. Ignores NaN."""
    known = np.isfinite(values)
    counts = window_sums(known.astype(float), width)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = window_sums(np.where(known, values, 0), width)
        return np.divide(sums, counts, out=np.full(len(values), np.nan), where=counts > 0)


def window_sums(values: np.ndarray, width: int) -> np.ndarray:
    """Returns the sum of `width` (odd) values around each value. Each window is the end of one block of `width` values
    plus the beginning of the next block. Unlike a difference of cumulative sums, this avoids rounding errors from
    values outside the window."""
    size = len(values) + width - 1
    blocks = np.zeros(-(-size // width) * width)
    blocks[width // 2 : width // 2 + len(values)] = values
    blocks = blocks.reshape(-1, width)
    to_here = np.cumsum(blocks, axis=1).ravel()
    from_here = np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1].ravel()
    begin = np.arange(len(values))
    return to_here[begin + width - 1] + np.where(begin % width == 0, 0, from_here[begin])
