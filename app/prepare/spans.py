"""Span corruption of plain text, T5's pre-training objective (Raffel et al., 2020, arXiv:1910.10683, 3.1.4). Sentinels
replace spans in the source and precede these spans in the target, as in transformers' run_t5_mlm_flax.py."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import PrepareError, shown
from .encoders import Encoder
from .encoding import Part
from .examples import SPECIAL
from .pairs import Made, PairsOutput, padding_of

SPANS = "spans"  # value of --format
OF_SPANS = ("span_seed",)  # flags
NOISE_DENSITY, MEAN_SPAN = 0.15, 3
LONGEST_SOURCE = 1 << 16
LEFT_OVER = "tokens after the last window"  # key of `counts`


def span_counts(window: int) -> tuple[int, int]:
    """Returns the numbers of noise tokens and of noise spans in a window."""
    noise = min(max(round(window * NOISE_DENSITY), 1), window - 1)
    return noise, max(round(noise / MEAN_SPAN), 1)


def lengths_of(window: int) -> tuple[int, int]:
    """Returns the lengths of source and target, both with the end-of-text id."""
    noise, spans = span_counts(window)
    return window - noise + spans + 1, noise + spans + 1


def window_of(source_length: int) -> int:
    """Returns the longest window with a source of at most `source_length` tokens."""
    window = 2
    while lengths_of(window + 1)[0] <= source_length:
        window += 1
    return window


def check_lengths(arguments: argparse.Namespace) -> None:
    source = arguments.source_length
    shortest = lengths_of(2)[0]
    if source is None or not shortest <= source <= LONGEST_SOURCE:
        raise PrepareError(
            f"--format {SPANS} needs a --source_length from {shortest} to {LONGEST_SOURCE}, such as 512."
        )
    length = source + lengths_of(window_of(source))[1]
    if arguments.seq_length not in (None, length):
        raise PrepareError(
            f"--seq_length {arguments.seq_length} conflicts with --source_length {source}, which requires {length}: "
            f"omit --seq_length here, and pass --seq_length {length} to mpzero train."
        )


def _segments(total: int, count: int, random: np.random.RandomState) -> np.ndarray:
    """Splits `total` into `count` segments and returns their lengths. All partitions are equally likely."""
    begins = np.arange(total - 1) < count - 1
    random.shuffle(begins)
    return np.bincount(np.cumsum(np.concatenate([[False], begins])), minlength=count)


def noise_mask(window: int, random: np.random.RandomState) -> np.ndarray:
    """Returns the mask of noise tokens. Kept and noise spans alternate, starting with a kept span."""
    noise, spans = span_counts(window)
    removed = _segments(noise, spans, random)
    kept = _segments(window - noise, spans, random)
    return np.repeat(np.arange(2 * spans) % 2 == 1, np.stack([kept, removed], 1).ravel())


def sentinels_of(encoder: Encoder, count: int) -> np.ndarray:
    """Returns the ids of <extra_id_0>, <extra_id_1>, ...; for bytes, the highest ids below --vocab_size."""
    if encoder.definition is None:
        if encoder.vocab_size - count <= encoder.eos_token_id:
            needed = encoder.eos_token_id + 1 + count
            raise PrepareError(f"tokenizer 'bytes' has no sentinels for {count} spans: pass --vocab_size {needed}.")
        return encoder.vocab_size - 1 - np.arange(count)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(encoder.definition)
    ids = [tokenizer.token_to_id(f"<extra_id_{i}>") for i in range(count)]
    if None in ids:
        raise PrepareError(
            f"tokenizer '{shown(encoder.name)}' has no <extra_id_{ids.index(None)}>, but --format {SPANS} needs "
            f"{count} sentinels: pass a T5 tokenizer, or a shorter --source_length."
        )
    return np.array(ids)


@dataclass(frozen=True)
class Spans:
    """Converts windows of tokens to pairs of source and target."""

    padding: int
    lengths: tuple[int, int]  # lengths of source and target
    eos: int
    sentinels: np.ndarray
    window: int

    def corrupt(self, tokens: np.ndarray, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        removed = noise_mask(self.window, random)
        return self._without(tokens, removed), self._without(tokens, ~removed)

    def _without(self, tokens: np.ndarray, removed: np.ndarray) -> np.ndarray:
        """Replaces each span of `removed` with a sentinel."""
        begins = removed & ~np.concatenate([[False], removed[:-1]])
        ids = tokens.astype(np.int64)
        ids[begins] = self.sentinels[: begins.sum()]
        return np.append(ids[begins | ~removed], self.eos)


class SpansOutput(PairsOutput):
    """A token file of corrupted windows. The seed and the index of a window determine its mask."""

    def __init__(self, path: Path, encoder: Encoder, arguments: argparse.Namespace):
        source, window = arguments.source_length, window_of(arguments.source_length)
        sentinels = sentinels_of(encoder, span_counts(window)[1])
        work = Spans(padding_of(encoder), (source, lengths_of(window)[1]), encoder.eos_token_id, sentinels, window)
        super().__init__(path, encoder, work, arguments)
        self._left = np.array([], encoder.dtype)  # incomplete last window
        self._seed = arguments.span_seed

    def add(self, part: Part) -> None:
        forbidden = np.isin(part.tokens, [self._work.padding, *self._work.sentinels])
        if forbidden.any():
            raise PrepareError(
                f"the text of {shown(self.file.path)} contains the token {part.tokens[forbidden][0]}, which is used as "
                "padding or as a sentinel: remove it from the text."
            )
        tokens, window = np.concatenate([self._left, part.tokens]), self._work.window
        whole = len(tokens) // window * window
        self._left = tokens[whole:]
        made = Made()
        made.counts[SPECIAL] = part.special_tokens
        for i, row in enumerate(tokens[:whole].reshape(-1, window)):
            random = np.random.RandomState((self._seed, self.num_rows + i))
            made.pairs.append(self._work.corrupt(row, random))
        super().add(made)

    def finish(self) -> None:
        if self.num_rows == 0:
            raise PrepareError(
                f"the text of {shown(self.file.path)} has fewer tokens than a window ({self._work.window}): add "
                "text, or pass a shorter --source_length."
            )
        self.counts[LEFT_OVER] = len(self._left)
        super().finish()
