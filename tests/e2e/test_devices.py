"""The device each rank trains on, depending on the GPUs that it is shown."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from tiny_run import TinyRun
from trainer import BUILD, ENVIRONMENT, REPOSITORY, num_gpus

pytestmark = pytest.mark.e2e

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


@pytest.mark.parametrize("instructions", ["AVX2", "AVX512_CORE"])
def test_bf16_trains_on_the_cpu_where_onednn_may_not_use_the_instructions_for_it(
    tmp_path: Path, instructions: str
) -> None:
    run = TinyRun(tmp_path, bf16=True)
    result = train(run, [{"ONEDNN_MAX_CPU_ISA": instructions}] * 2)
    assert result.returncode == 0, result.stderr
    assert len(run.metrics()) == 2


def on_slurm(tmp_path: Path, cuda: str, *, nvml: str = "", node: str = "node7", **variables: str) -> dict[str, str]:
    """The variables of a rank of a Slurm step with two GPUs, with stand-ins for CUDA and the management library."""
    libraries = tmp_path / "libraries"
    libraries.mkdir(exist_ok=True)
    if not (libraries / "libnvidia-ml.so.1").exists():
        (libraries / "libnvidia-ml.so.1").symlink_to(BUILD / "tests/libfake_nvml.so")
    slurm = {"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "2", "SLURM_GPUS_ON_NODE": "2", "SLURMD_NODENAME": node}
    stand_ins = {"LD_PRELOAD": str(BUILD / "tests/libfake_cuda.so"), "LD_LIBRARY_PATH": str(libraries)}
    return {**stand_ins, "MPZERO_FAKE_CUDA": cuda, "MPZERO_FAKE_NVML": f"gpus=2 {nvml}", **slurm, **variables}


def test_a_dry_run_plans_for_the_multiprocessors_of_the_gpu(tmp_path: Path) -> None:
    """--deterministic: ceil(multiprocessors / 16 heads) fp32 copies of the query gradients [8192, 16, 128]."""
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}')
    flags = [
        f"--model_config={REPOSITORY}/configs/models/qwen3_0_6b.json",
        f"--deepspeed_config={tmp_path}/ds_config.json",
    ]
    flags += ["--seq_length=8192", "--vocab_size=256", "--deterministic", "--device=cuda", "--world_size=1"]
    flags += [f"--train_data={tmp_path}/none", f"--checkpoint_dir={tmp_path}/checkpoints"]

    def gibibytes(gpu: str) -> float:
        environment = {**os.environ, **on_slurm(tmp_path, "", nvml=f"name={gpu}")}
        words = [str(BUILD / "bin" / "mpzero"), "train", "--dry_run", *flags]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
        return float(re.search(r"workspace ([\d.]+) GiB", done.stdout)[1])

    copies = -(-132 // 16) - -(-58 // 16)
    assert gibibytes("H100") - gibibytes("L4") == pytest.approx(copies * 8192 * 16 * 128 * 4 / 2**30, abs=0.02)


def assert_of_host(run: TinyRun, result: subprocess.CompletedProcess[str], host: str, *words: str) -> None:
    """One sentence, exit status 1, and evidence that blames this host alone."""
    assert result.returncode == 1, result.stderr
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("mpzero: error: ")]
    assert [word for word in (host, *words) if word not in error] == [], error
    (path,) = run.checkpoints.glob("failures/*/rank_0.json")
    evidence, start = json.loads(path.read_text()), json.loads((path.parent / "start.json").read_text())
    assert (evidence["why"], start["job"], start["restart"]) == ("device_error", "17", 2)
    assert {start["hosts"][rank] for rank in evidence["culprits"]} == {host}
    assert evidence["error"] in error


def test_a_node_whose_fabric_manager_is_down_is_to_blame(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, device="auto")
    result = train(run, [on_slurm(tmp_path, "gpus=2 init=802")] * 2)
    assert_of_host(run, result, "node7", "802", "Fabric Manager is not running", "nvidia-fabricmanager")


def test_only_the_node_whose_cuda_is_dead_is_to_blame(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, device="cuda")
    dead = on_slurm(tmp_path, "init=999", node="node8")
    assert_of_host(run, train(run, [on_slurm(tmp_path, "gpus=2"), dead]), "node8", "999")


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
