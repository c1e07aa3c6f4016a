"""Adds missing checksums to token files that older versions or other programs wrote."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np

from . import PrepareError, shown
from .progress import Progress
from .texts import text_of
from .token_file import FORMAT_VERSION, TokenFile

BLOCK = 4 << 20  # elements
NUMBERS, TEXTS = ("vocab_size", "eos_token_id"), ("tokenizer", "source")
# Attributes that may be missing in files of older versions.
MORE_NUMBERS, MORE_TEXTS = ("bos_token_id", "add_bos", "special_tokens_in_text"), ("tokenizer_hash", "special_tokens")
# Attributes that are recomputed.
OWN = ("format_version", "max_token_id", "arguments")


def rewrite(path: Path) -> None:
    """Adds checksums to the file, or to the target of a symlink. Keeps its tokens, documents, attributes and mode."""
    import h5py

    if not path.is_file():
        raise PrepareError(f"{shown(path)} is not a file: pass the token file to --rewrite.")
    try:
        path = path.resolve()
        with h5py.File(path, "r", locking=False) as file:
            _rewrite(path, file)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise PrepareError(f"{shown(path)} cannot be read as a token file: {shown(error)}.") from error


def _rewrite(path: Path, file) -> None:
    if "tokens_xxh3" in file:
        print(f"{shown(path)}: already has checksums; unchanged.")
        return
    tokens, offsets, attributes = _tokens_of(file), _offsets_of(file), _attributes_of(file)
    arguments = json.loads(text_of(file, "arguments")) if "arguments" in file.attrs else None
    written = TokenFile(path, tokens.dtype, mode=stat.S_IMODE(path.stat().st_mode))
    progress = Progress("Writing", len(tokens) * tokens.dtype.itemsize)
    try:
        for begin in range(0, len(tokens), BLOCK):
            written.append_tokens(tokens[begin : begin + BLOCK])
            progress.update(written.num_tokens * tokens.dtype.itemsize, written.num_tokens)
        _copy_offsets(offsets, len(tokens), written)
        written.commit(attributes, arguments)
    finally:
        progress.close()
        written.discard()
    print(f"{shown(path)}: rewritten with checksums, {written.num_tokens:,} tokens.")
    known = (*OWN, *attributes)
    if others := [shown(name) for name in (*file.attrs, *file) if name not in (*known, "tokens", "document_offsets")]:
        print(f"{shown(path)}: dropped entries that do not belong in a token file: {', '.join(others)}.")


def _tokens_of(file):
    tokens = file["tokens"]
    if tokens.ndim != 1 or tokens.dtype not in (np.uint16, np.uint32) or len(tokens) == 0:
        raise ValueError("/tokens is not a non-empty one-dimensional uint16 or uint32 dataset")
    return _full(tokens)


def _offsets_of(file):
    offsets = file["document_offsets"]
    if offsets.ndim != 1 or offsets.dtype != np.uint64 or len(offsets) == 0 or offsets[0] != 0:
        raise ValueError("/document_offsets is not a one-dimensional uint64 dataset that begins with 0")
    return _full(offsets)


def _full(dataset):
    """Refuses data that was never written, because it would be read as zeros and get valid checksums."""
    missing = (
        dataset.id.get_num_chunks() < -(-len(dataset) // dataset.chunks[0])
        if dataset.chunks
        else dataset.id.get_storage_size() == 0
    )
    if missing:
        raise ValueError(f"{dataset.name} is incomplete: a part was never written")
    return dataset


def _attributes_of(file) -> dict[str, int | str]:
    if (version := int(file.attrs["format_version"])) != FORMAT_VERSION:
        raise ValueError(f"format version {version} is not supported (expected {FORMAT_VERSION})")
    numbers = [*NUMBERS, *(name for name in MORE_NUMBERS if name in file.attrs)]
    texts = [*TEXTS, *(name for name in MORE_TEXTS if name in file.attrs)]
    return {name: int(file.attrs[name]) for name in numbers} | {name: text_of(file, name) for name in texts}


def _copy_offsets(offsets, num_tokens: int, written: TokenFile) -> None:
    last = 0
    for begin in range(1, len(offsets), BLOCK):
        ends = offsets[begin : begin + BLOCK]
        if (np.diff(ends.astype(np.int64), prepend=last) < 0).any():
            raise ValueError("/document_offsets is not ascending")
        last = int(ends[-1])
        written.append_ends(ends)
    if last != num_tokens:
        raise ValueError(f"the documents end at token {last:,}, but the file has {num_tokens:,} tokens")
