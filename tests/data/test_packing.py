"""Examples are packed best-fit decreasing, and laid out as documents that no row divides."""

import numpy as np
import pytest

from .conftest import prepare_module

PADDING = 9


def best_fit(lengths, size):
    return prepare_module("packing").best_fit_decreasing(lengths, size)


def test_best_fit_decreasing_by_hand():
    """Lengths 4 (5, cut), 2, 3 and 1 in rows of 4."""
    assert best_fit([4, 2, 3, 1], 4) == [[0], [2, 3], [1]]
    # 4 leaves room for 2, 5 for 1: the fullest row with room is used, not the first.
    assert best_fit([4, 5, 1, 2], 6) == [[1, 2], [0, 3]]


def test_each_example_is_in_one_row_that_has_room_for_it():
    lengths = np.random.default_rng(0).integers(1, 65, 5000).tolist()
    rows = best_fit(lengths, 64)
    assert sorted(index for row in rows for index in row) == list(range(5000))
    assert max(sum(lengths[index] for index in row) for row in rows) <= 64


def test_conversations_of_mean_600_fill_rows_of_4096():
    lengths = np.random.default_rng(0).lognormal(np.log(600) - 0.5, 1, 20_000).astype(int).clip(1, 4096).tolist()
    rows = best_fit(lengths, 4096)
    assert sum(lengths) / (len(rows) * 4096) > 0.99


@pytest.mark.parametrize("packed", [True, False])
def test_rows_are_laid_out_as_documents(packed):
    examples = [(np.full(length, i, np.uint16), np.ones(length, np.uint8)) for i, length in enumerate([4, 2, 3, 1])]
    rows = [[0], [2, 3], [1]] if packed else [[0], [1], [2], [3]]
    tokens, mask, ends = prepare_module("packing").laid_out(examples, rows, 4, PADDING)
    if packed:
        assert tokens.tolist() == [0, 0, 0, 0, 2, 2, 2, 3, 1, 1, PADDING, PADDING]
        # The first token of a document is no target.
        assert mask.tolist() == [0, 1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 0]
        assert ends.tolist() == [4, 7, 8, 10, 12]
    else:
        assert tokens.tolist() == [0, 0, 0, 0, 1, 1, PADDING, PADDING, 2, 2, 2, PADDING, 3, PADDING, PADDING, PADDING]
        assert ends.tolist() == [4, 6, 8, 11, 12, 13, 16]
    assert tokens.dtype == np.uint16 and mask.dtype == np.uint8
