"""Fewer points of a curve that look the same: the least and the greatest of each stretch are kept."""

from __future__ import annotations

import numpy as np

MOST_POINTS = 4000


def thinned(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """-> the places of the points to keep, in order: all where there are no more than `most`, else first, last and
    each stretch's least and greatest. Places without a value (NaN) are left out."""
    known = np.flatnonzero(np.isfinite(values))
    if len(known) <= most:
        return known
    stretches = most // 2 - 1
    edges = np.linspace(0, len(known), stretches + 1).astype(int)[:-1]
    of_known = values[known]
    # The place of each stretch's extreme: sort by stretch, then by value.
    stretch = np.searchsorted(edges, np.arange(len(known)), side="right") - 1
    order = np.lexsort((of_known, stretch))
    ends = np.append(edges[1:], len(known))
    places = np.concatenate([[0, len(known) - 1], order[edges], order[ends - 1]])
    return known[np.unique(places)]


def smooth(values: np.ndarray, width: int) -> np.ndarray:
    """Mean over `width` (odd) values around each, fewer at the ends; NaN is ignored."""
    known = np.isfinite(values)
    sums = np.concatenate([[0], np.cumsum(np.where(known, values, 0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    here = np.arange(len(values))
    begin, end = np.maximum(here - width // 2, 0), np.minimum(here + width // 2 + 1, len(values))
    in_window = counts[end] - counts[begin]
    return np.divide(sums[end] - sums[begin], in_window, out=np.full(len(values), np.nan), where=in_window > 0)
