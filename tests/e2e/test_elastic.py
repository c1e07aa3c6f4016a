"""A golden run that stops with one number of ranks and ZeRO stage and resumes with another follows the golden trace."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
from golden_run import FP32_TOLERANCE, assert_follows, train_golden

pytestmark = pytest.mark.e2e

# The numbers of ranks that divide the golden runs' global batches of 6 and 8.
RANKS = {"llama-zero3-fp32": (1, 2, 3), "qwen3-zero2-fp32": (1, 2, 4)}
STOP = 5
LONG = "MPZERO_LONG_TESTS" in os.environ
# test_nodes_resume_in_every_other_layout has the other one in the short form.
NAMES = [*RANKS] if LONG else ["llama-zero3-fp32"]

Shape = tuple[str, int, int]  # golden run, ranks, stage
SHAPES = {name: [(name, *shape) for shape in itertools.product(ranks, (2, 3))] for name, ranks in RANKS.items()}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> dict[Shape, Path]:
    """The folder of a run that stopped, for each shape."""
    folders = {}
    for shape in itertools.chain(*(SHAPES[name] for name in NAMES)):
        name, ranks, stage = shape
        folder = tmp_path_factory.mktemp("stopped")
        steps, _ = train_golden(name, folder, f"--max_steps={STOP}", ranks=ranks, stage=stage)
        assert len(steps) == STOP
        folders[shape] = folder
    return folders


# The short form leaves every shape once and arrives at every shape once.
@pytest.mark.parametrize("shift", range(6) if LONG else [3])
@pytest.mark.parametrize("name", NAMES)
def test_resumes_in_another_shape(tmp_path: Path, stopped: dict[Shape, Path], name: str, shift: int) -> None:
    shapes = SHAPES[name]
    for index, left in enumerate(shapes):
        _, ranks, stage = shapes[(index + shift) % len(shapes)]
        folder = tmp_path / str(index)
        shutil.copytree(stopped[left], folder)
        steps, result = train_golden(name, folder, ranks=ranks, stage=stage)
        assert f"Resumed from checkpoint at step {STOP}" in result.stdout, (left, ranks, stage)
        assert_follows(name, steps, FP32_TOLERANCE, first=1)


# Virtual nodes: ranks, stage, ranks a node (None: one level).
FORMATS = {"hdf5": "*/*optim_states.h5", "deepspeed": "*/*optim_states.pt"}
LAYOUTS = [(4, 3, 2), (2, 2, 1), (4, 3, None), (4, 1, 2)]


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_nodes_resume_in_every_other_layout(tmp_path: Path, checkpoint_format: str) -> None:
    """Each layout stops, and the next one resumes its checkpoint; the files do not depend on the number of nodes."""
    name = "qwen3-zero2-fp32"
    folders = {}
    for layout in LAYOUTS:
        ranks, stage, size = layout
        zero = {"mics_shard_size": size} if size else {}
        folder = tmp_path / f"{ranks}-{stage}-{size}"
        flags = [f"--max_steps={STOP}", f"--checkpoint_format={checkpoint_format}"]
        train_golden(name, folder, *flags, ranks=ranks, stage=stage, zero=zero)
        assert len(list((folder / "checkpoints").glob(FORMATS[checkpoint_format]))) == ranks
        folders[layout] = folder
    for left, arrived in zip(LAYOUTS, [*LAYOUTS[1:], LAYOUTS[0]], strict=True):
        ranks, stage, size = arrived
        zero = {"mics_shard_size": size} if size else {}
        folder = tmp_path / f"resumed-{ranks}-{stage}-{size}"
        shutil.copytree(folders[left], folder)
        flags = [f"--checkpoint_format={checkpoint_format}"]
        steps, result = train_golden(name, folder, *flags, ranks=ranks, stage=stage, zero=zero)
        assert f"Resumed from checkpoint at step {STOP}" in result.stdout, (left, arrived)
        assert_follows(name, steps, FP32_TOLERANCE, first=1)


def test_nodes_give_the_same_bits_again(tmp_path: Path) -> None:
    """A rerun, and a run that stops and resumes, on two nodes of two ranks."""
    name, zero = "qwen3-zero2-fp32", {"mics_shard_size": 2}
    straight, _ = train_golden(name, tmp_path / "straight", ranks=4, stage=3, zero=zero)
    again, _ = train_golden(name, tmp_path / "again", ranks=4, stage=3, zero=zero)
    train_golden(name, tmp_path / "resumed", f"--max_steps={STOP}", ranks=4, stage=3, zero=zero)
    resumed, _ = train_golden(name, tmp_path / "resumed", ranks=4, stage=3, zero=zero)
    for other in (again, resumed):
        for key in ("step", "loss", "lr", "grad_norm"):
            assert [step[key] for step in other] == [step[key] for step in straight]
    shards = sorted((tmp_path / "straight" / "checkpoints").glob("*/*optim_states.h5"))
    assert len(shards) == 4
    for folder in ("again", "resumed"):
        for shard in shards:
            other = tmp_path / folder / shard.relative_to(tmp_path / "straight")
            assert shard.read_bytes() == other.read_bytes(), (folder, shard.name)
