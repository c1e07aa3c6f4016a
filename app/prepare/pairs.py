"""Writes token files of pairs for an encoder-decoder: each row contains a padded source and a padded target."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from . import PrepareError, shown, shown_count
from .encoders import Encoder
from .encoding import BATCH
from .examples import ROWS_PER_BATCH, SPECIAL, Unit
from .rows import no_such_column, text_of, two_keys
from .sources import Source
from .token_file import TokenFile

PAIRS = "pairs"  # value of --format
OF_PAIRS = ("source_column", "target_column", "source_prefix", "source_length", "train_padding")  # flags
FORMAT_VERSION = 3
BYTES_PADDING = 0  # byte that text does not contain
EMPTY = "rows without a source or a target"
CUT_SOURCES, CUT_TARGETS = "truncated sources", "truncated targets"  # keys of `counts`


def check_lengths(arguments: argparse.Namespace) -> None:
    source, row = arguments.source_length, arguments.seq_length
    if source is None or row is None or source >= row:
        raise PrepareError(
            "--format pairs needs --source_length and a larger --seq_length (source + target), e.g. 512 and 640."
        )


def padding_of(encoder: Encoder) -> int:
    if encoder.definition is None:
        return BYTES_PADDING
    from tokenizers import Tokenizer

    token = encoder.template_tokens.get("pad_token")
    padding = None if token is None else Tokenizer.from_str(encoder.definition).token_to_id(token)
    if padding is None:
        raise PrepareError(f"tokenizer '{shown(encoder.name)}' has no pad_token, which --format pairs needs.")
    return padding


@dataclass
class Made:
    """Results of one batch for one output file."""

    pairs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)


@dataclass(frozen=True)
class Pairs:
    """Converts rows to pairs. Each worker process receives a copy of this object."""

    encoder: Encoder
    padding: int
    columns: tuple[str, str]
    prefix: str
    lengths: tuple[int, int]

    def size_of(self, _unit: Unit) -> int:
        return BATCH // ROWS_PER_BATCH

    def function(self):
        """Returns a function that maps a list of Unit to a list of (output file index, tokenized pairs)."""
        return partial(self._make, self.encoder.function())

    def _make(self, encode, units: list[Unit]) -> list[tuple[int, Made]]:
        made = {unit.target: Made() for unit in units}
        rows, texts = [], []
        for row, target in units:
            source, answer = (self._text(row, column) for column in self.columns)
            if not source or not answer:
                made[target].counts[EMPTY] += 1
                continue
            rows.append((row.where, made[target]))
            texts += [("", self.prefix + source), ("", answer)]
        ids, special = encode(texts)
        for i, (where, into) in enumerate(rows):
            into.pairs.append((self._cut(ids[2 * i], 0, where, into), self._cut(ids[2 * i + 1], 1, where, into)))
            into.counts[SPECIAL] += special[2 * i] + special[2 * i + 1]
        return sorted(made.items())

    def _text(self, row, column: str) -> str:
        if row.double is not None:
            raise two_keys(row.where, row.double)
        if column not in row.values:
            raise no_such_column(column, row.values, row.where)
        return text_of(row.values[column], column, row.where)

    def _cut(self, ids: np.ndarray, which: int, where: str, into: Made) -> np.ndarray:
        """Truncates the ids. The result always ends with the end-of-text id."""
        if (ids == self.padding).any():
            raise PrepareError(
                f"{where} contains the padding token {self.padding}: remove it from column '{self.columns[which]}'."
            )
        length = self.lengths[which]
        into.counts[(CUT_SOURCES, CUT_TARGETS)[which]] += len(ids) >= length
        return np.append(ids[: length - 1], self.encoder.eos_token_id).astype(self.encoder.dtype)


class PairsOutput:
    """A token file of pairs."""

    def __init__(self, path: Path, encoder: Encoder, work, arguments: argparse.Namespace):
        """work: Pairs, or an object with the attributes `padding` and `lengths`."""
        self.file = TokenFile(path, encoder.dtype, masked=True)
        self.counts = Counter()
        self.num_rows = self.num_trained = 0
        self._work, self._row = work, sum(work.lengths)
        self._trains_padding = arguments.train_padding

    @property
    def num_tokens(self) -> int:
        return self.file.num_tokens

    def add(self, made: Made) -> None:
        self.counts.update(made.counts)
        tokens = np.full((len(made.pairs), self._row), self._work.padding)
        mask = np.zeros(tokens.shape, np.uint8)
        begin = self._work.lengths[0]
        for row, weights, (source, target) in zip(tokens, mask, made.pairs, strict=True):
            row[: len(source)] = source
            row[begin : begin + len(target)] = target
            weights[begin : None if self._trains_padding else begin + len(target)] = 1
        self.file.append(tokens.ravel(), self._row * np.arange(1, len(tokens) + 1), mask.ravel())
        self.num_rows += len(tokens)
        self.num_trained += int(mask.sum())

    def finish(self) -> None:
        # As in packed files, one token follows the last row.
        self.file.append(np.array([self._work.padding]), np.array([1]), np.zeros(1, np.uint8))

    def attributes(self) -> dict[str, int | str]:
        return {
            "format_version": FORMAT_VERSION,
            "packed_sequence_length": self._row,
            "source_length": self._work.lengths[0],
            "pad_token_id": self._work.padding,
            "num_examples": self.num_rows,
            "trained_tokens": self.num_trained,
            "special_tokens_in_text": self.counts[SPECIAL],
        }


def work_of(encoder: Encoder, arguments: argparse.Namespace) -> Pairs:
    source = arguments.source_length
    [prefix], _ = encoder.function()([("", arguments.source_prefix)])
    if len(prefix) >= source - 1:
        raise PrepareError(
            f"--source_prefix has {len(prefix)} tokens, too many for --source_length "
            f"{source}: use a shorter prefix or a longer --source_length."
        )
    columns = (arguments.source_column, arguments.target_column)
    lengths = (source, arguments.seq_length - source)
    return Pairs(encoder, padding_of(encoder), columns, arguments.source_prefix, lengths)


def check_pairs(outputs: list[PairsOutput], source: Source) -> None:
    for output in outputs:
        if output.num_rows == 0:
            raise PrepareError(
                f"{shown(source.dataset)}: no pairs for {shown(output.file.path)} ({EMPTY}: {output.counts[EMPTY]:,}): "
                "check the columns."
            )


def print_pairs(output: PairsOutput) -> None:
    path = shown(output.file.path)
    print(f"{path}: {shown_count(output.num_rows, 'pair')}, loss tokens: {output.num_trained:,}.")
    for name, count in output.counts.items():
        if count and name != SPECIAL:
            print(f"{path}: {name}: {count:,}.")
