"""Encodes rendered conversations to ids with their character ranges. Special token names are encoded as special ids."""

from __future__ import annotations

import json
import os
import re

import numpy as np

from .encoders import BYTES_EOS, Encoder
from .special_tokens import special_tokens_of

Encoded = tuple[np.ndarray, np.ndarray]  # ids, and [tokens, 2]: character range of each id


def encoding_with_offsets(encoder: Encoder):
    """Returns a function that maps a list of texts to a list of Encoded. No BOS is added: the template writes it."""
    if encoder.definition is None:
        return lambda texts: [_of_bytes(text, encoder) for text in texts]
    from tokenizers import Tokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    definition = json.loads(encoder.definition)
    definition["post_processor"] = None  # some post-processors exclude leading spaces from the offsets
    tokenizer = Tokenizer.from_str(json.dumps(definition))

    def encode(texts: list[str]) -> list[Encoded]:
        found = tokenizer.encode_batch(texts, add_special_tokens=False)
        return [(np.array(one.ids, encoder.dtype), np.array(one.offsets, np.int64).reshape(-1, 2)) for one in found]

    return encode


def _of_bytes(text: str, encoder: Encoder) -> Encoded:
    """Encodes BYTES_EOS as the end-of-text id."""
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    for part in re.split(f"({re.escape(BYTES_EOS)})", text):
        at = offsets[-1][1] if offsets else 0
        if part == BYTES_EOS:
            ids.append(encoder.eos_token_id)
            offsets.append((at, at + len(part)))
        else:
            ids += part.encode()
            offsets += [(i, i + 1) for i, character in enumerate(part, at) for _ in character.encode()]
    return np.array(ids, encoder.dtype), np.array(offsets, np.int64).reshape(-1, 2)


def special_ids(encoder: Encoder) -> frozenset[int]:
    found = {} if encoder.definition is None else special_tokens_of(json.loads(encoder.definition))
    return frozenset({*found.values(), encoder.eos_token_id})


def decoding(encoder: Encoder):
    """Returns a function that decodes ids to text."""
    if encoder.definition is None:
        return lambda ids: b"".join(bytes([i]) if i < 256 else BYTES_EOS.encode() for i in ids).decode(errors="replace")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(encoder.definition)
    return lambda ids: tokenizer.decode([int(i) for i in ids], skip_special_tokens=False)
