"""The masks of mpzero's dropout, for transformers' T5."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest

PLACES = 8  # of each unit: scores and output of self- and of cross-attention, feed-forward's inner and output, norm


def philox(counter: np.ndarray, seed: int) -> np.ndarray:
    """Philox4x32-10 (Salmon et al., SC11): [..., 4] uint64 below 2^32."""
    c = [counter[..., i] for i in range(4)]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ keys[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ keys[1], a & 0xFFFFFFFF]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, -1)


def is_kept(shape: tuple[int, ...], rate: float, seed: int, first_sample: int, place: int) -> np.ndarray:
    """shape: sequences first"""
    elements = int(np.prod(shape[1:]))
    counter = np.zeros((shape[0], -(-elements // 4), 4), np.uint64)
    counter[..., 0] = np.arange(counter.shape[1])
    counter[..., 1] = place
    counter[..., 2] = first_sample + np.arange(shape[0])[:, None]
    words = philox(counter, seed).reshape(shape[0], -1)[:, :elements]
    return (words >= int(rate * 2**32)).reshape(shape)


def places(config) -> list[int]:
    """In the order in which transformers drops."""
    encoder = [PLACES * unit + i for unit in range(1, config.num_layers + 1) for i in (0, 1, 4, 5)]
    head = 1 + config.num_layers + config.num_decoder_layers
    decoder = [PLACES * unit + i for unit in range(1 + config.num_layers, head) for i in range(6)]
    return [0, *encoder, PLACES * config.num_layers + 6, 1, *decoder, PLACES * head]


@contextmanager
def masks_of_mpzero(config, seed: int, first_sample: int) -> Iterator[None]:
    """Within, one forward of a model in training drops what mpzero drops."""
    torch = pytest.importorskip("torch")
    to_come = iter(places(config))

    def dropout(x, p=0.5, training=True, inplace=False):
        if not training:
            return x
        kept = is_kept(tuple(x.shape), p, seed, first_sample, next(to_come))
        return x * torch.from_numpy(kept) / (1 - p)

    with mock.patch("torch.nn.functional.dropout", dropout):
        yield
    assert not list(to_come)
