"""Packs examples into rows of equal length, in the trainer's layout."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict

import numpy as np

GROUP = 100_000  # examples that are packed together; limits memory


def best_fit_decreasing(lengths: list[int], size: int) -> list[list[int]]:
    """Returns the rows as lists of indices. Adds each example, longest first, to the fullest row with enough space.
    lengths: at most `size` each."""
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = defaultdict(list)  # incomplete rows by free space
    rooms: list[int] = []  # keys of open_rows, ascending
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        at = bisect_left(rooms, lengths[index])
        if at == len(rooms):
            row, room = len(rows), size
            rows.append([])
        else:
            room = rooms[at]
            row = open_rows[room].pop()
            if not open_rows[room]:
                rooms.pop(at)
        rows[row].append(index)
        left = room - lengths[index]
        if left > 0:
            if not open_rows[left]:
                insort(rooms, left)
            open_rows[left].append(row)
    return rows


def laid_out(
    examples: list[tuple[np.ndarray, np.ndarray]], rows: list[list[int]], size: int, padding: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (tokens, loss mask, end positions of documents). examples: (ids, mask). Each example is a document, as is
    the padding of each row. The first token of a document is not a target."""
    tokens = np.full(len(rows) * size, padding, examples[0][0].dtype)
    mask = np.zeros(len(tokens), np.uint8)
    ends = []
    for number, row in enumerate(rows):
        at = number * size
        for index in row:
            ids, trained = examples[index]
            tokens[at : at + len(ids)] = ids
            mask[at + 1 : at + len(ids)] = trained[1:]
            at += len(ids)
            ends.append(at)
        if at < (number + 1) * size:
            ends.append((number + 1) * size)
    return tokens, mask, np.array(ends, np.int64)
