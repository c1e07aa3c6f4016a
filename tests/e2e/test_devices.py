"""The device each rank trains on, depending on the GPUs that it is shown."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from tiny_run import TinyRun
from trainer import BUILD, ENVIRONMENT, num_gpus

pytestmark = pytest.mark.e2e

without_gpus = pytest.mark.skipif(num_gpus() > 0, reason="GPUs are here")
with_two_gpus = pytest.mark.skipif(num_gpus() < 2, reason="fewer than 2 GPUs")


def train(run: TinyRun, variables: list[dict[str, str]], *flags: str) -> subprocess.CompletedProcess[str]:
    """Two steps of ranks with different environment variables."""
    words = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for rank, own in enumerate(variables):
        words += [":"] if rank > 0 else []
        words += ["-n", "1", "env", *[f"{name}={value}" for name, value in own.items()]]
        words += [str(BUILD / "bin" / "mpzero"), "train", *run.flags(), "--max_steps=2", *flags]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)


@without_gpus
def test_a_missing_gpu_is_one_sentence(tmp_path: Path) -> None:
    result = train(TinyRun(tmp_path, device="cuda"), [{"CUDA_VISIBLE_DEVICES": "0"}] * 2)
    assert result.returncode == 2
    (error,) = [line for line in result.stderr.splitlines() if "error" in line and "mpirun" not in line]
    assert error.startswith(f"mpzero: error: --device cuda: CUDA shows no GPU on {socket.gethostname()} (")
    assert "CUDA_VISIBLE_DEVICES=0)" in error
    assert "NVIDIA's driver is not loaded there" in error


@without_gpus
def test_a_run_on_the_cpu_of_a_node_whose_gpus_slurm_has_given_is_warned_about(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, device="auto")
    words = f"mpzero: warning: training on the CPU, although Slurm has given this job 8 GPUs on {socket.gethostname()}"
    # Only one of the two ranks knows.
    result = train(run, [{}, {"SLURM_GPUS_ON_NODE": "8"}])
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(words) == 1
    run.device = "cpu"
    assert "training on the CPU" not in train(run, [{"SLURM_GPUS_ON_NODE": "8"}] * 2).stderr


@with_two_gpus
def test_ranks_that_are_shown_one_gpu_each_train_as_those_that_see_all(tmp_path: Path) -> None:
    """Like with Slurm's --gpus-per-task=1: each rank's own GPU is its device 0."""
    losses = []
    for name, variables in {"all": [{}, {}], "own": [{"CUDA_VISIBLE_DEVICES": str(rank)} for rank in (0, 1)]}.items():
        run = TinyRun(tmp_path / name, bf16=True, device="cuda", stage=3)
        result = train(run, variables)
        assert result.returncode == 0, result.stderr
        losses.append([line["loss"] for line in run.metrics()])
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


@with_two_gpus
def test_ranks_that_are_shown_the_same_gpu_are_refused(tmp_path: Path) -> None:
    result = train(TinyRun(tmp_path, bf16=True, device="cuda"), [{"CUDA_VISIBLE_DEVICES": "1"}] * 2)
    assert result.returncode == 2
    assert f"2 ranks on {socket.gethostname()} share one GPU" in result.stderr
