"""Encodes pieces of documents in order, with several processes if the input is large."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from .encoders import Encoder
from .sources import Source

BATCH = 1 << 19  # batch size of a worker, in characters or in units of the work's size_of()
BYTES_PER_WORKER = 4 << 20  # bytes of text that justify an additional process


class Piece(NamedTuple):
    """A document or a part of a document."""

    before: str  # preceding character, if the tokenizer needs it
    text: str
    begins: bool  # True if a document of the output file begins here
    ends: bool  # True if the document ends here
    target: int  # index of the output file


class Part(NamedTuple):
    """A batch's contribution to an output file."""

    tokens: np.ndarray
    ends: np.ndarray  # end positions of documents in `tokens`
    special_tokens: int  # number of special token names in the text


@dataclass
class _Batch:
    """Pieces that one worker encodes, in order."""

    pieces: list
    done: int = 0  # Source.done when the batch was completed


def default_workers(size: int | None, encoder: Encoder) -> int:
    """Returns the number of worker processes. size: bytes of text, or None if unknown."""
    cores = len(os.sched_getaffinity(0))
    if encoder.definition is None:
        return 1  # encoding bytes is faster than sending them to workers
    return cores if size is None else min(cores, 1 + size // BYTES_PER_WORKER)


@dataclass(frozen=True)
class Texts:
    """Plain text. Each document begins with BOS, if the encoder adds it, and ends with the end-of-text id."""

    encoder: Encoder

    def size_of(self, piece: Piece) -> int:
        return len(piece.text)

    def function(self):
        """Returns a function that maps a list of pieces to a list of (output file index, Part)."""
        return partial(_encode_texts, self.encoder, self.encoder.function())


def encode(pieces: Iterable, source: Source, work, workers: int) -> Iterator[tuple[int, list]]:
    """Yields (Source.done, the work's result) for each batch, in the same order for any number of workers. Only a few
    batches are in flight. work: Texts, or an object with the same methods, which is sent to each worker. Raises
    BrokenProcessPool if a worker dies."""
    batches = _batches(pieces, source, work.size_of)
    if workers == 1:
        function = work.function()
        for batch in batches:
            yield batch.done, function(batch.pieces)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(work,)) as pool:
        waiting: deque = deque()
        try:
            for batch in batches:
                # Pickle here: the pool may hang if pickling fails in its own thread (CPython 3.11).
                waiting.append((batch.done, pool.submit(_encode_in_worker, pickle.dumps(batch.pieces))))
                if len(waiting) > 3 * workers:
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _batches(pieces: Iterable, source: Source, size_of) -> Iterator[_Batch]:
    batch, size = _Batch([]), 0
    for piece in pieces:
        batch.pieces.append(piece)
        size += size_of(piece)
        if size >= BATCH:
            batch.done = source.done
            yield batch
            batch, size = _Batch([]), 0
    if batch.pieces:
        batch.done = source.done
        yield batch


def _encode_texts(encoder: Encoder, function, batch: list[Piece]) -> list[tuple[int, Part]]:
    ids, counts = function([(piece.before, piece.text) for piece in batch])
    eos = np.array([encoder.eos_token_id], encoder.dtype)
    bos = np.array([encoder.bos_token_id] if encoder.add_bos else [], encoder.dtype)
    none = np.array([], encoder.dtype)
    parts = []
    for target in sorted({piece.target for piece in batch}):
        chosen = [i for i, piece in enumerate(batch) if piece.target == target]
        pieces = [batch[i] for i in chosen]
        arrays = [
            np.concatenate([bos if piece.begins else none, ids[i], eos if piece.ends else none])
            for i, piece in zip(chosen, pieces, strict=True)
        ]
        ends = np.cumsum([len(array) for array in arrays], dtype=np.int64)[[piece.ends for piece in pieces]]
        parts.append((target, Part(np.concatenate(arrays), ends, sum(counts[i] for i in chosen))))
    return parts


_worker = None  # each process of the pool builds its tokenizer once


def _start_worker(work) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process terminates the pool
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    _worker = work.function()


def _encode_in_worker(pieces: bytes) -> list:
    return _worker(pickle.loads(pieces))
