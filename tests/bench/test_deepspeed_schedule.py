"""bench/deepspeed_schedule.py. Oracle: schedules of a few weights by hand, and the bytes of ring collectives."""

from __future__ import annotations

import pytest
from deepspeed_schedule import Limits, Network, Weight, limits_of, step, weights_of
from measures import read_model

RANKS = 16
NO_NETWORK = Network(rate=1e30, latency=0)
SMALL = Limits(prefetch=0, max_live=1e9, max_reuse=0)


def test_without_a_network_a_step_is_computing_and_the_host() -> None:
    weights = [Weight(1000, 1, 2), Weight(1000, 3, 4)]
    seconds, _ = step(weights, NO_NETWORK, SMALL, 2, own=5)
    assert seconds == pytest.approx(2 * 10 + 5)


def test_each_weight_is_gathered_twice_and_its_gradient_reduced_once() -> None:
    # 15/16 of 16,000 elements of 2 bytes at 30,000 bytes a second: 1 s. The last weight stays for backward.
    weights = [Weight(16_000, 0, 0), Weight(16_000, 0, 0)]
    seconds, sent = step(weights, Network(rate=30_000, latency=0), SMALL, 1, own=0)
    assert seconds == pytest.approx(5)
    assert sent == pytest.approx(5 * 30_000)


def test_what_is_used_again_soon_stays_gathered() -> None:
    weights = [Weight(16_000, 0, 0)] * 3
    near = Limits(prefetch=0, max_live=1e9, max_reuse=1e9)
    assert step(weights, Network(30_000, 0), near, 1, own=0)[0] == pytest.approx(6)
    assert step(weights, Network(30_000, 0), SMALL, 1, own=0)[0] == pytest.approx(8)


def test_a_gather_ahead_hides_behind_computing() -> None:
    # Forward: 1 s of gather, 2 s of computing during which the next gather runs, 2 s. Backward: the last weight is
    # there: 2 s; its reduction and the other's gather follow each other on the network, and the last reduction.
    weights = [Weight(16_000, 2, 2), Weight(16_000, 2, 2)]
    ahead = Limits(prefetch=1, max_live=1e9, max_reuse=0)
    assert step(weights, Network(30_000, 0), ahead, 1, own=0)[0] == pytest.approx(1 + 2 + 2 + 2 + 2 + 1)
    assert step(weights, Network(30_000, 0), SMALL, 1, own=0)[0] > 10


def test_the_workshop_s_model() -> None:
    config = read_model("llama_3_8b")
    weights = weights_of(config, computing=3)
    assert sum(weight.numel for weight in weights) == pytest.approx(8.03e9, rel=1e-3)
    assert sum(weight.forward + weight.backward for weight in weights) == pytest.approx(3)
    limits = limits_of({"stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": "auto"}, 4096)
    assert limits == Limits(prefetch=0.9 * 4096**2, max_live=1e9, max_reuse=1e9)
    # bench/RESULTS.md: 180.7 GB for 12 ring collectives; what is kept for backward is not gathered again.
    _, sent = step(weights, NO_NETWORK, limits, 4, own=0)
    assert 160e9 < sent < 180.7e9
