#!/usr/bin/env python3
"""Writes a token file of random IDs, in the format of app/prepare_data.py.

bench/random_tokens.py OUT.h5 --vocab_size N [--packed SEQ_LENGTH]     packed documents with a mean length of 600
bench/random_tokens.py OUT.h5 --vocab_size N --pairs SOURCE TARGET     pairs with these lengths, without padding
"""

from __future__ import annotations

import argparse
from pathlib import Path

import h5py
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--vocab_size", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=1 << 23)
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--packed", type=int, metavar="SEQ_LENGTH")
    rows.add_argument("--pairs", type=int, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--mean", type=int, default=600, help="mean number of tokens in a packed document")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    generator = np.random.default_rng(arguments.seed)
    row = sum(arguments.pairs) if arguments.pairs else arguments.packed
    tokens = generator.integers(0, arguments.vocab_size, arguments.tokens, dtype=np.uint32)
    offsets = np.array([0, len(tokens)], dtype=np.uint64)
    if row:
        tokens = tokens[: (len(tokens) - 1) // row * row + 1]
        offsets = np.append(np.arange(0, len(tokens), row), len(tokens)).astype(np.uint64)
    if arguments.packed:
        lengths = generator.exponential(arguments.mean, 2 * len(tokens) // arguments.mean).astype(np.int64) + 2
        ends = np.concatenate([np.cumsum(lengths), np.arange(0, len(tokens), arguments.packed), [len(tokens)]])
        offsets = np.unique(ends[ends <= len(tokens)]).astype(np.uint64)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = arguments.output.with_suffix(".part")
    with h5py.File(unfinished, "w") as file:
        file.create_dataset("tokens", data=tokens)
        file.create_dataset("document_offsets", data=offsets)
        file.attrs["format_version"] = 3 if arguments.pairs else 2 if arguments.packed else 1
        if arguments.pairs:
            file.attrs["source_length"], file.attrs["pad_token_id"] = arguments.pairs[0], 0
        if row:
            loss_mask = np.ones(len(tokens), np.uint8)
            if arguments.packed:
                loss_mask[offsets[:-1].astype(np.int64)] = 0
            file.create_dataset("loss_mask", data=loss_mask)
            file.attrs["packed_sequence_length"] = row
        file.attrs["vocab_size"] = arguments.vocab_size
        file.attrs["max_token_id"] = int(tokens.max())
        file.attrs["eos_token_id"] = arguments.vocab_size - 1
        file.attrs["tokenizer"] = "none"
        file.attrs["source"] = f"random ids, seed {arguments.seed}"
    unfinished.replace(arguments.output)


if __name__ == "__main__":
    main()
