"""The golden runs: stock DeepSpeed 0.19.8 on two CPU ranks, step by step (tests/golden).

Every ZeRO stage, number of ranks and place of the optimizer must give the losses, rates and gradient norms that
DeepSpeed gave for the same global batches.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golden_run import BF16_TOLERANCE, FP32_TOLERANCE, assert_follows, train_golden
from safetensors import safe_open
from trainer import GOLDEN, num_gpus

pytestmark = pytest.mark.e2e


def run_golden(name: str, folder: Path, tolerance: float = FP32_TOLERANCE, **layout: object) -> list[dict]:
    """The steps of train_golden(), which are those of the golden trace."""
    steps, _ = train_golden(name, folder, **layout)
    assert_follows(name, steps, tolerance)
    return steps


def check_internode_bytes(name: str, steps: list[dict], nodes: int, late: bool = False) -> None:
    """A node sends (nodes - 1) / nodes of the gradients and of the parameters once a step, whatever the accumulation.

    Not counted here: what fills up the shards, and the step's own figures. `late`: parameters may be sent in the step
    after the one that updates them, so that the first step has the gradients' half for certain.
    """
    with safe_open(GOLDEN / name / "init" / "model.safetensors", framework="numpy") as weights:
        parameters = sum(int(np.prod(weights.get_slice(key).get_shape())) for key in weights.keys())  # noqa: SIM118
    formula = 2 * 4 * parameters * (nodes - 1) / nodes
    for number, step in enumerate(steps):
        least = formula / 2 if late and number == 0 else formula
        assert least <= step["internode_bytes"] <= 1.1 * formula, step


@pytest.mark.parametrize(("stage", "ranks"), [(0, 1), (0, 4), (1, 2), (2, 1), (2, 4), (3, 2), (3, 4)])
def test_qwen3_fp32(tmp_path: Path, stage: int, ranks: int) -> None:
    run_golden("qwen3-zero2-fp32", tmp_path, ranks=ranks, stage=stage, offload=stage >= 2)


@pytest.mark.parametrize(("stage", "ranks"), [(0, 2), (2, 1), (3, 1), (3, 2), (3, 3)])
def test_llama_fp32(tmp_path: Path, stage: int, ranks: int) -> None:
    run_golden("llama-zero3-fp32", tmp_path, ranks=ranks, stage=stage, offload=stage == 3)


@pytest.mark.parametrize(("stage", "ranks"), [(0, 1), (2, 2), (3, 4)])
def test_qwen3_bf16(tmp_path: Path, stage: int, ranks: int) -> None:
    run_golden("qwen3-zero2-bf16", tmp_path, BF16_TOLERANCE, ranks=ranks, stage=stage, offload=True)


# Virtual nodes, as nodes x ranks a node: each pair of stage, nodes and overlap.
@pytest.mark.parametrize(
    ("stage", "nodes", "ranks_per_node", "overlap"),
    [
        (1, 2, 2, True), (1, 2, 1, False), (1, 4, 1, True),
        (2, 2, 2, False), (2, 2, 1, True), (2, 4, 1, False),
        (3, 2, 2, True), (3, 2, 1, False), (3, 4, 1, True), (3, 2, 2, False),
    ],
)  # fmt: skip
def test_nodes(tmp_path: Path, stage: int, nodes: int, ranks_per_node: int, overlap: bool) -> None:
    # On the CPU nothing is offloaded; tests/parallel/zero has threads that update on the host there.
    ranks = nodes * ranks_per_node
    zero = {"mics_shard_size": ranks_per_node, "overlap_comm": overlap}
    steps = run_golden("qwen3-zero2-fp32", tmp_path, ranks=ranks, stage=stage, zero=zero)
    check_internode_bytes("qwen3-zero2-fp32", steps, nodes)


@pytest.fixture
def two_hosts_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mpirun starts two ranks on each of two hosts, which are two daemons on this machine."""
    hosts, agent = tmp_path / "hosts", tmp_path / "agent"
    hosts.write_text("h0 slots=2\nh1 slots=2\n")
    # Each daemon needs its own folder: concurrent writes of the machine's topology to one file crash a daemon.
    agent.write_text(
        f'#!/bin/sh\n# In place of ssh HOST COMMAND.\nexport OMPI_MCA_orte_tmpdir_base={tmp_path}/"$1"\n'
        'mkdir -p "$OMPI_MCA_orte_tmpdir_base"\nshift\nexec sh -c "$*"\n'
    )
    agent.chmod(0o755)
    for name, value in {
        "plm": "rsh",
        "plm_rsh_agent": agent,
        "orte_default_hostfile": hosts,
        "btl": "self,tcp",  # shared-memory files of the two daemons would have equal names
        "btl_tcp_if_include": "lo",
    }.items():
        monkeypatch.setenv(f"OMPI_MCA_{name}", str(value))


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.usefixtures("two_hosts_of_two")
def test_hosts_of_several_ranks_are_shard_groups_by_default(tmp_path: Path, stage: int) -> None:
    name = "qwen3-zero2-fp32"
    steps = run_golden(name, tmp_path / "default", ranks=4, stage=stage)
    check_internode_bytes(name, steps, 2)
    one_level = run_golden(name, tmp_path / "one_level", ranks=4, stage=stage, zero={"mics_shard_size": 4})
    assert all(few["internode_bytes"] < many["internode_bytes"] for few, many in zip(steps, one_level, strict=True))


# Stage, and whether the optimizer and the parameters are in host memory.
PLACEMENTS = [
    (1, False, False),
    (1, True, False),
    (2, True, False),
    (3, False, False),
    (3, True, False),
    (3, True, True),
]


@pytest.mark.parametrize(("stage", "optimizer", "parameters"), PLACEMENTS)
@pytest.mark.parametrize(("nodes", "ranks_per_node"), [(2, 2), (2, 1), (4, 1)])
@pytest.mark.parametrize("overlap", [False, True])
def test_nodes_on_gpus(
    tmp_path: Path, stage: int, nodes: int, ranks_per_node: int, optimizer: bool, parameters: bool, overlap: bool
) -> None:
    ranks = nodes * ranks_per_node
    if num_gpus() < ranks:
        pytest.skip(f"fewer than {ranks} GPUs")
    zero: dict = {"mics_shard_size": ranks_per_node, "overlap_comm": overlap}
    if parameters:
        zero["offload_param"] = {"device": "cpu"}
    # Its five units are more than are gathered ahead, so that late updates on the host are waited for.
    name = "qwen3-zero2-fp32"
    steps = run_golden(name, tmp_path, ranks=ranks, stage=stage, offload=optimizer, device="cuda", zero=zero)
    check_internode_bytes(name, steps, nodes, late=parameters)


@pytest.mark.parametrize("stage", [1, 3])
def test_three_nodes(tmp_path: Path, stage: int) -> None:
    zero = {"mics_shard_size": 1}
    steps = run_golden("llama-zero3-fp32", tmp_path, ranks=3, stage=stage, zero=zero)
    check_internode_bytes("llama-zero3-fp32", steps, 3)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize(
    ("name", "stage", "tolerance"),
    [
        ("qwen3-zero2-fp32", 2, FP32_TOLERANCE),
        ("llama-zero3-fp32", 3, FP32_TOLERANCE),
        ("qwen3-zero2-bf16", 2, BF16_TOLERANCE),
        ("qwen3-zero2-bf16", 3, BF16_TOLERANCE),
    ],
)
def test_on_gpus(tmp_path: Path, name: str, stage: int, tolerance: float, offload: bool, ranks: int) -> None:
    if num_gpus() < ranks:
        pytest.skip("no GPU" if ranks == 1 else f"fewer than {ranks} GPUs")
    run_golden(name, tmp_path, tolerance, ranks=ranks, stage=stage, offload=offload, device="cuda")
