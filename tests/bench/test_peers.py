"""The peers' side: what DeepSpeed is given, and mpzero compared with Hugging Face step by step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trainer import BUILD, ENVIRONMENT, write_tokens

REPOSITORY = Path(__file__).resolve().parents[2]


def test_users_files_as_deepspeed_reads_them() -> None:
    from deepspeed_peer import as_deepspeed_reads_it

    qwen = json.loads((REPOSITORY / "configs" / "ds_config.json").read_text())
    # As many guides spell it, and DeepSpeed does not.
    qwen["scheduler"]["params"]["cosine_min_ratio"] = qwen["scheduler"]["params"].pop("cos_min_ratio")
    schedule = as_deepspeed_reads_it(qwen, 1024)["scheduler"]["params"]
    assert "cosine_min_ratio" not in schedule and schedule["cos_min_ratio"] == 0 and schedule["total_num_steps"] > 0
    llama = json.loads((REPOSITORY / "configs" / "ds_config_llama3_8b_zero3_offload.json").read_text())
    filled_in = as_deepspeed_reads_it(llama, 4096)
    assert "auto" not in json.dumps(filled_in)
    # The Trainer's formulas: h squared, nine tenths of it, 10 h.
    zero = filled_in["zero_optimization"]
    assert zero["reduce_bucket_size"] == 16777216
    assert zero["stage3_prefetch_bucket_size"] == 15099494
    assert zero["stage3_param_persistence_threshold"] == 40960


def test_deepspeed_takes_the_files() -> None:
    deepspeed_config = pytest.importorskip("deepspeed.runtime.config")
    from deepspeed_peer import WORKS, as_deepspeed_reads_it

    for name, work in WORKS.items():
        written = work.config
        if isinstance(written, str):
            written = json.loads((REPOSITORY / written).read_text())
        parsed = deepspeed_config.DeepSpeedConfig(as_deepspeed_reads_it(written, 1024))
        assert parsed.zero_config.stage in (2, 3), name
        assert parsed.gradient_clipping == (0.0 if name.endswith("_unclipped") else 1.0), name
        assert parsed.zero_config.offload_optimizer is None or (
            parsed.zero_config.offload_optimizer.super_offload == ("superoffload" in name)
        ), name


def test_superoffload_has_the_threads_of_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of AdamW is started with as many threads as DeepSpeed binds cores to it."""
    utils = pytest.importorskip("deepspeed.runtime.superoffload.superoffload_utils")
    from deepspeed_peer import WORKS, super_offload_cores

    bound: dict[int, list[int]] = {}

    class Process:
        def __init__(self, pid: int = 0):
            self.pid = pid

        def cpu_affinity(self, cores: list[int] | None = None) -> list[int]:
            if cores is not None:
                bound[self.pid] = cores
            return list(range(16))

    monkeypatch.setattr(utils.psutil, "Process", Process)
    optimizer = utils.SuperOffloadCPUOptimizer.__new__(utils.SuperOffloadCPUOptimizer)
    optimizer.cpuadam_process = Process(1)
    for share in (None, 0.5, 0.9):
        config = json.loads(json.dumps(WORKS["tiny_superoffload"].config))
        if share:
            config["zero_optimization"]["offload_optimizer"]["cpuadam_cores_perc"] = share
        optimizer._set_cpu_affinity(share or 0.8)
        assert super_offload_cores(config, 16) == len(bound[1])
        assert sorted(bound[0] + bound[1]) == list(range(16))
    assert super_offload_cores(WORKS["zero3_offload_4b"].config, 16) == 0


def learning_rates(total: int) -> list[float]:
    pytest.importorskip("h5py")
    pytest.importorskip("transformers")
    from compare_hugging_face import learning_rate

    return [learning_rate(step, 3e-4, total) for step in range(1, total + 1)]


def test_learning_rates_are_those_of_deepspeed() -> None:
    schedules = pytest.importorskip("deepspeed.runtime.lr_schedules")
    torch = pytest.importorskip("torch")
    ours = learning_rates(40)
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
    theirs = schedules.WarmupCosineLR(
        optimizer, total_num_steps=40, warmup_min_ratio=0.0, warmup_num_steps=10, cos_min_ratio=0.1
    )
    expected = []
    for _ in range(40):
        expected.append(optimizer.param_groups[0]["lr"] if expected else 0.0)
        theirs.step()
    assert ours == pytest.approx(expected, rel=1e-9, abs=1e-15)


def steps(*losses: float, lr: float = 0.1) -> list[dict]:
    return [{"step": step, "loss": loss, "lr": lr, "grad_norm": 1.0} for step, loss in enumerate(losses, start=1)]


def test_verdict() -> None:
    pytest.importorskip("h5py")
    pytest.importorskip("transformers")
    from compare_hugging_face import compare

    agreeing = compare("a", steps(9.0, 8.0, 7.0), steps(9.001, 8.005, 7.002), 1e-2)
    assert agreeing["agree"] and agreeing["at_step"] == 2
    assert not compare("a", steps(9.0, 8.0), steps(9.0, 8.02), 1e-2)["agree"]
    assert not compare("a", steps(9.0, float("nan"), 7.0), steps(9.0, 8.0, 7.0), 1e-2)["agree"]
    with pytest.raises(SystemExit, match="learning rate"):
        compare("a", steps(9.0), steps(9.0, lr=0.2), 1e-2)
    with pytest.raises(SystemExit, match="2 and 3 steps"):
        compare("a", steps(9.0, 8.0), steps(9.0, 8.0, 7.0), 1e-2)


@pytest.mark.e2e
@pytest.mark.parametrize(("kind", "tolerance"), [("fp32", 1e-4), pytest.param("bf16", 1e-2, marks=pytest.mark.nightly)])
def test_mpzero_compared_with_hugging_face(tmp_path: Path, kind: str, tolerance: float) -> None:
    """The comparison as it is run on a GPU, with a tiny Qwen3 on the CPU and tokens that can be learnt."""
    pytest.importorskip("transformers")
    rng = np.random.default_rng(0)
    ramp = np.cumsum(np.full(20_001, 3)) % 256
    data = write_tokens(tmp_path / "t.h5", np.where(rng.random(20_001) < 0.8, ramp, rng.integers(0, 256, 20_001)), 260)
    command = [sys.executable, str(REPOSITORY / "bench" / "compare_hugging_face.py"), str(tmp_path / "out")]
    command += [f"--build={BUILD}", f"--train_data={data}", "--model_type=qwen3_tiny", "--device=cpu"]
    command += ["--steps=60", "--seq_length=64", "--micro_batch=4", "--lr=3e-4", f"--tolerance={tolerance}"]
    command += ["--fp32"] if kind == "fp32" else []
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=500, env={**os.environ, **ENVIRONMENT}, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    verdict = json.loads(result.stdout.splitlines()[-1])  # DeepSpeed, if it is installed, prints before
    assert verdict["agree"] and verdict["steps"] == 60
    # Both learnt something, so that the agreement is not that of untouched weights.
    assert verdict["last_losses"][0] < verdict["first_losses"][0] - 0.5
