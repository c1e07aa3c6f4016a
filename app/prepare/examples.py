"""Converts rows of conversations to examples: token ids with a loss mask."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from . import PrepareError
from .chat import Completion, Conversation, conversation_of
from .encoders import BYTES_EOS, Encoder
from .encoding import BATCH
from .masks import EMPTY, Dropped, Marked, Renderer, end_of_turn, num_straddling, token_mask
from .offsets import encoding_with_offsets, special_ids
from .rows import Row
from .special_tokens import counter_of

NO_COMPLETION, CUT_BEFORE = "the completion is empty", "no token within --seq_length contributes to the loss"
CUT, SPECIAL, STRADDLING = "cut", "special tokens", "straddling"  # keys of `counts`
ROWS_PER_BATCH = 64


class Unit(NamedTuple):
    """A row and the index of its output file."""

    row: Row
    target: int


@dataclass
class Made:
    """Results of one batch for one output file. `counts`: for the report. `dropped`: number of dropped examples by
    reason. `ends`: number of turns
    that contribute to the loss, by last token id."""

    examples: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # (ids, mask)
    counts: Counter = field(default_factory=Counter)
    dropped: Counter = field(default_factory=Counter)
    ends: Counter = field(default_factory=Counter)

    def add(self, other: Made) -> None:
        self.examples += other.examples
        self.counts.update(other.counts)
        self.dropped.update(other.dropped)
        self.ends.update(other.ends)


@dataclass(frozen=True)
class Examples:
    """Converts rows to examples. Each worker process receives a copy of this object."""

    encoder: Encoder
    format: str
    seq_length: int
    renderer: Renderer | str  # str: error message if there is no renderer
    unused: str | None = None  # a flag that has no effect on rows of strings
    chosen: bool = True  # True if --format was passed

    def size_of(self, _unit: Unit) -> int:
        return BATCH // ROWS_PER_BATCH

    def function(self):
        """Returns a function that maps a list of Unit to a list of (output file index, tokenized examples)."""
        encode = encoding_with_offsets(self.encoder)
        count = counter_of(self.encoder.special_names or (BYTES_EOS,))
        return partial(self._make, encode, special_ids(self.encoder), count)

    def _make(self, encode, special: frozenset[int], count, units: list[Unit]) -> list[tuple[int, Made]]:
        made = {unit.target: Made() for unit in units}
        texts: list[str] = []
        marked: list[tuple[Conversation | Completion, Marked, Made]] = []
        for row, target in units:
            into, conversation = made[target], conversation_of(row, self.format, self.chosen)
            into.counts[SPECIAL] += sum(map(count, conversation.texts()))
            try:
                found = self._marked(conversation, into.counts)
            except Dropped as reason:
                into.dropped[str(reason)] += 1
                continue
            for one in found:
                _check_characters(one.text, row.where)
                texts.append(one.text)
                marked.append((conversation, one, into))
        for (conversation, one, into), (ids, offsets) in zip(marked, encode(texts), strict=True):
            self._add(conversation, one, ids, offsets, special, into)
        return sorted(made.items())

    def _marked(self, conversation: Conversation | Completion, counts: Counter) -> list[Marked]:
        if isinstance(conversation, Completion):
            if self.unused:
                raise PrepareError(
                    f"{conversation.where}: 'prompt' and 'completion' are strings, so --{self.unused} has no "
                    "effect: omit it."
                )
            if not conversation.text:
                raise Dropped(NO_COMPLETION)
            text = conversation.prompt + conversation.text
            return [Marked(text, [(len(conversation.prompt), len(text))])]
        if isinstance(self.renderer, str):
            raise PrepareError(f"{conversation.where}: {self.renderer}")
        return self.renderer.examples(conversation, counts)

    def _add(self, conversation, marked: Marked, ids, offsets, special: frozenset[int], into: Made) -> None:
        mask = np.zeros(len(ids), np.uint8)
        into.counts[STRADDLING] += num_straddling(offsets, marked.spans)
        ends = []
        for (begin, _), indices in zip(marked.spans, token_mask(offsets, marked.spans), strict=True):
            mask[indices] = 1
            if isinstance(conversation, Completion):
                continue
            if (last := end_of_turn(ids[indices], special)) is None:
                raise PrepareError(
                    f"{conversation.where}: an answer does not end with a special token of tokenizer "
                    f"'{self.encoder.name}' in this chat template, so the model would not learn to stop: pass this "
                    "tokenizer's --chat_template, or move the endgeneration tag of the template after that token."
                )
            if not marked.text[begin : offsets[indices[last]][0]].strip():
                into.dropped[EMPTY] += 1
                return
            if not self.renderer.tagged:
                mask[indices[last + 1 :]] = 0  # a newline after the end-of-turn token
            ends.append(int(indices[last]))
        if isinstance(conversation, Completion):
            before = [self.encoder.bos_token_id] if self.encoder.add_bos else []
            ids = np.concatenate([before, ids, [self.encoder.eos_token_id]]).astype(self.encoder.dtype)
            mask = np.concatenate([[0] * len(before), mask, [1]]).astype(np.uint8)
            ends.append(len(ids) - 1)
        mask[:1] = 0  # the first token is not a target
        kept = mask[: self.seq_length]
        if not kept.any():
            into.dropped[CUT_BEFORE] += 1
            return
        into.counts[CUT] += len(ids) > self.seq_length
        into.ends.update(int(ids[end]) for end in ends if end < len(kept))
        into.examples.append((ids[: self.seq_length], kept))


def _check_characters(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise PrepareError(f"{where} contains {half}, an unpaired surrogate: fix the text.") from error
