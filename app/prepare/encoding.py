"""Encodes pieces of documents, in several processes if there is enough text for them, and keeps their order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from .encoders import Encoder
from .sources import Source

BATCH = 1 << 19  # characters that a worker encodes at once
BYTES_PER_WORKER = 4 << 20  # text per process from which another process is worth its start

Piece = tuple[str, bool, int]  # text, whether the document ends with it, number of its output file
Part = tuple[int, np.ndarray, np.ndarray]  # number of the output file, tokens, where documents end in them


@dataclass
class _Batch:
    """Pieces for one worker, in order."""

    texts: list[str]
    ends: list[bool]
    targets: list[int]
    done: int = 0  # Source.done when the batch was completed


def default_workers(size: int | None, encoder: Encoder) -> int:
    """size: of the text in bytes, if it is known."""
    cores = len(os.sched_getaffinity(0))
    if encoder.definition is None:
        return 1  # encoding bytes takes less time than sending them
    return cores if size is None else min(cores, 1 + size // BYTES_PER_WORKER)


def encode(pieces: Iterable[Piece], source: Source, encoder: Encoder, workers: int) -> Iterator[tuple[int, list[Part]]]:
    """-> (how far the source was read, what that adds to each output file), in the same order for any number of
    workers. The ids of each document are followed by the end-of-text id. Only a few pieces wait at any time. A worker
    that dies raises BrokenProcessPool."""
    batches = _batches(pieces, source)
    if workers == 1:
        function = encoder.function()
        for batch in batches:
            yield batch.done, _encode_batch(batch, encoder, function)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(encoder,)) as pool:
        waiting: deque = deque()
        try:
            for batch in batches:
                waiting.append((batch.done, pool.submit(_encode_in_worker, batch)))
                if len(waiting) > 3 * workers:
                    done, future = waiting.popleft()
                    yield done, future.result()
            while waiting:
                done, future = waiting.popleft()
                yield done, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _batches(pieces: Iterable[Piece], source: Source) -> Iterator[_Batch]:
    batch, size = _Batch([], [], []), 0
    for text, ends, target in pieces:
        batch.texts.append(text)
        batch.ends.append(ends)
        batch.targets.append(target)
        size += len(text)
        if size >= BATCH:
            batch.done = source.done
            yield batch
            batch, size = _Batch([], [], []), 0
    if batch.texts:
        batch.done = source.done
        yield batch


def _encode_batch(batch: _Batch, encoder: Encoder, function) -> list[Part]:
    ids = function(batch.texts)
    eos = np.array([encoder.eos_token_id], dtype=encoder.dtype)
    parts = []
    for target in sorted(set(batch.targets)):
        chosen = [i for i, other in enumerate(batch.targets) if other == target]
        arrays = [np.append(ids[i], eos) if batch.ends[i] else ids[i] for i in chosen]
        ends = np.cumsum([len(array) for array in arrays], dtype=np.int64)
        parts.append((target, np.concatenate(arrays), ends[[batch.ends[i] for i in chosen]]))
    return parts


_worker: tuple | None = None  # a process of the pool builds its tokenizer once


def _start_worker(encoder: Encoder) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends the pool
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    _worker = (encoder, encoder.function())


def _encode_in_worker(batch: _Batch) -> list[Part]:
    return _encode_batch(batch, *_worker)
