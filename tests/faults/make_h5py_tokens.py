#!/usr/bin/env python3
"""Makes h5py_tokens.h5: a token file as a user's own script would write it, with texts of variable length."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

rng = np.random.default_rng(14)
tokens = rng.integers(0, 300, 2001).astype(np.uint16)
with h5py.File(Path(__file__).parent / "h5py_tokens.h5", "w", libver="earliest") as file:
    file.create_dataset("tokens", data=tokens, chunks=(500,))
    file.create_dataset("document_offsets", data=np.array([0, 700, 1400, 2001], dtype=np.uint64))
    file.attrs["format_version"] = 1
    file.attrs["vocab_size"] = 300
    file.attrs["eos_token_id"] = 299
    file.attrs["tokenizer"] = "somebody's own"
    file.attrs["source"] = "a script"
