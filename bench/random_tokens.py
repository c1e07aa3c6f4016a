#!/usr/bin/env python3
"""Writes a token file of random ids, in the format that app/prepare_data.py writes.

bench/random_tokens.py OUT.h5 --vocab_size N
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
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tokens = np.random.default_rng(arguments.seed).integers(0, arguments.vocab_size, arguments.tokens, dtype=np.uint32)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = arguments.output.with_suffix(".part")
    with h5py.File(unfinished, "w") as file:
        file.create_dataset("tokens", data=tokens)
        file.create_dataset("document_offsets", data=np.array([0, len(tokens)], dtype=np.uint64))
        file.attrs["format_version"] = 1
        file.attrs["vocab_size"] = arguments.vocab_size
        file.attrs["max_token_id"] = int(tokens.max())
        file.attrs["eos_token_id"] = arguments.vocab_size - 1
        file.attrs["tokenizer"] = "none"
        file.attrs["source"] = f"random ids, seed {arguments.seed}"
    unfinished.replace(arguments.output)


if __name__ == "__main__":
    main()
