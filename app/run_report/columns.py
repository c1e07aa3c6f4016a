"""The values of each metric over the steps of a run."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping

import numpy as np


class Columns(Mapping):
    """By metric: a value a step, NaN where the step has none. They are kept as they come. An array is made when it is
    asked for, since a file may have a thousand metrics, each in a few steps."""

    def __init__(self) -> None:
        self.steps = 0  # whose values are all here
        self._places: dict[str, array] = {}
        self._values: dict[str, array] = {}
        self._made: dict[str, np.ndarray] = {}

    def add(self, metric: str, value: float) -> None:
        """Of the step after `steps`."""
        if metric not in self._places:
            self._places[metric], self._values[metric] = array("q"), array("d")
        self._places[metric].append(self.steps)
        self._values[metric].append(value)

    def __getitem__(self, metric: str) -> np.ndarray:
        if metric not in self._made:
            column = np.full(self.steps, np.nan)
            column[np.frombuffer(self._places[metric], np.int64)] = np.frombuffer(self._values[metric])
            self._made[metric] = column
        return self._made[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
