"""zero_quantized_gradients and zero_quantized_weights: what crosses between nodes in fewer bits.

The oracle is the exact run: near it in losses, and its formula of bytes with fewer bits. Reruns and resumed runs have
the same bits.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from golden_run import train_golden
from tiny_run import TinyRun

pytestmark = pytest.mark.e2e

NAME = "qwen3-zero2-fp32"
BOTH = {"zero_quantized_gradients": True, "zero_quantized_weights": True}
# Bits of a value, and how many share a scale of 32 bits (docs/configuration.md); as it is in fp32.
INT8, INT4, EXACT = (8, 256), (4, 128), (32, None)


def up_to(multiple: int, number: int) -> int:
    return -(-number // multiple) * multiple


def message_bytes(values: int, form: tuple[int, int | None]) -> int:
    """A shard's, filled up to 16 bytes."""
    bits, block = form
    return up_to(16, values * bits // 8 + (up_to(block, values) // block * 4 if block else 0))


def check_bytes(
    folder: Path, steps: list[dict], nodes: int, ranks: int, forms: tuple[tuple[int, int | None], ...]
) -> None:
    """The formula: each rank sends a shard of each unit's gradients, and of its parameters, to each other node.

    `forms`: of both. A shard is a multiple of 64 values.
    """
    model = next(folder.glob("checkpoints/*/mp_rank_00_model_states.h5"))
    units = json.loads(h5py.File(model).attrs["param_shapes"])
    counts = [sum(int(np.prod(parameter["shape"])) for parameter in unit["parameters"]) for unit in units]
    shards = [up_to(64, up_to(ranks, count) // ranks) for count in counts]
    # Squares, loss, votes to stop, warnings, attention shares and each rank's time, in fp64.
    figures = 8 * (5 + ranks)
    to_each_node = figures + sum(message_bytes(shard, form) for shard in shards for form in forms)
    for step in steps:
        assert step["internode_bytes"] == to_each_node * (nodes - 1) * ranks // nodes, step


def losses(steps: list[dict]) -> np.ndarray:
    return np.array([step["loss"] for step in steps])


def zero_of(ranks_per_node: int, **keys: object) -> dict:
    return {"mics_shard_size": ranks_per_node, **keys}


# Nodes, ranks a node, stage, optimizer in host memory, overlap.
LAYOUTS = [(2, 2, 3, True, True), (4, 1, 1, False, False)]


@pytest.mark.parametrize(("nodes", "ranks_per_node", "stage", "offload", "overlap"), LAYOUTS)
def test_losses_are_near_and_bytes_are_few(
    tmp_path: Path, nodes: int, ranks_per_node: int, stage: int, offload: bool, overlap: bool
) -> None:
    zero = zero_of(ranks_per_node, overlap_comm=overlap)
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    ranks = nodes * ranks_per_node
    exact, _ = train_golden(NAME, tmp_path / "exact", ranks=ranks, stage=stage, zero=zero)
    check_bytes(tmp_path / "exact", exact, nodes, ranks, (EXACT, EXACT))
    for name, keys, flags, bits, tolerance in [
        ("gradients", {"zero_quantized_gradients": True}, [], (INT8, EXACT), 0.01),
        ("four", {"zero_quantized_gradients": True}, ["--quantized_gradient_bits=4"], (INT4, EXACT), 0.05),
        ("weights", {"zero_quantized_weights": True}, [], (EXACT, INT8), 0.01),
        ("both", BOTH, [], (INT8, INT8), 0.01),
    ]:
        steps, result = train_golden(NAME, tmp_path / name, *flags, ranks=ranks, stage=stage, zero={**zero, **keys})
        # The first step's loss is that of the same weights.
        assert losses(steps)[0] == pytest.approx(losses(exact)[0], rel=1e-6)
        assert losses(steps) == pytest.approx(losses(exact), rel=tolerance), name
        assert losses(steps)[1:].tolist() != losses(exact)[1:].tolist(), name
        check_bytes(tmp_path / name, steps, nodes, ranks, bits)
        assert re.search(r"between shard groups: [\d.]+ [kMG]B \([48]-bit (gradients|parameters)", result.stdout), (
            result.stdout
        )


def same(one: list[dict], other: list[dict]) -> bool:
    return all([step[key] for step in one] == [step[key] for step in other] for key in ("step", "loss", "grad_norm"))


@pytest.mark.parametrize(("ranks", "ranks_per_node", "stage", "offload"), [(2, 1, 2, False), (4, 2, 3, True)])
def test_a_stopped_run_goes_on_with_the_same_bits(
    tmp_path: Path, ranks: int, ranks_per_node: int, stage: int, offload: bool
) -> None:
    zero = zero_of(ranks_per_node, **BOTH)
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    straight, _ = train_golden(NAME, tmp_path / "straight", ranks=ranks, stage=stage, zero=zero)
    again, _ = train_golden(NAME, tmp_path / "again", ranks=ranks, stage=stage, zero=zero)
    assert same(straight, again)
    train_golden(NAME, tmp_path / "resumed", "--max_steps=3", ranks=ranks, stage=stage, zero=zero)
    resumed, result = train_golden(NAME, tmp_path / "resumed", ranks=ranks, stage=stage, zero=zero)
    assert "compression" not in result.stderr
    assert same(straight, resumed)
    files = sorted((tmp_path / "straight" / "checkpoints").glob("*/*_states.h5"))
    assert len([file for file in files if "carried" in file.name]) == ranks
    for file in files:
        other = tmp_path / "resumed" / file.relative_to(tmp_path / "straight")
        if "model_states" in file.name:
            continue
        assert file.read_bytes() == other.read_bytes(), file.name


def test_what_a_checkpoint_carries(tmp_path: Path) -> None:
    """docs/formats.md has the same."""
    train_golden(NAME, tmp_path, ranks=4, stage=2, zero=zero_of(2, **BOTH))
    files = sorted((tmp_path / "checkpoints").glob("*/zero_pp_rank_*_carried_states.h5"))
    assert len(files) == 4
    for file in files:
        with h5py.File(file) as carried:
            assert dict(carried.attrs) == {"format_version": 1, "nodes": 2, "ranks_per_node": 2}
            for group in carried.values():
                residual, parameters = group["gradient_residual"], group["parameters"]
                assert residual.dtype == np.float32
                assert residual.shape == (1, parameters.shape[0])
                assert np.abs(parameters[:]).max() < 10


def test_refused_combinations(tmp_path: Path) -> None:
    offload = {"stage": 3, "offload_param": {"device": "cpu"}, "zero_quantized_weights": True}
    result = TinyRun(tmp_path / "a", config={"zero_optimization": offload}).train("--max_steps=1", check=False)
    assert result.returncode == 2
    assert "zero_quantized_weights does not support offload_param" in result.stderr
    run = TinyRun(tmp_path / "b")
    result = run.train("--max_steps=1", "--quantized_gradient_bits=4")
    assert "--quantized_gradient_bits 4 has no effect" in result.stderr
    result = run.train("--max_steps=1", "--quantized_gradient_bits=6", check=False)
    assert result.returncode == 2
    assert "quantized_gradient_bits" in result.stderr
