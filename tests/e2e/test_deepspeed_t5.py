"""T5 with stock DeepSpeed on the CPU: each resumes from the other's files. fp32, one rank, within 1e-5."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from golden_run import nightly
from test_t5 import ADAMW, BATCH, CLIPPING, STEPS, T5Run, expected_steps, loss_of, tiny_model

pytestmark = pytest.mark.e2e

SAVED_AFTER = 2
# Gated, stage.
CASES = [(False, 3), (True, 2)]
NIGHTLY = [(False, 2), (True, 3)]


def train_with_deepspeed(weights: Path, stage: int, last: int, load: str, save: str) -> list[float]:
    """Steps up to `last`, without dropout; load and save: a folder of checkpoints, or empty."""
    import deepspeed
    import transformers

    model = transformers.T5ForConditionalGeneration.from_pretrained(weights, attn_implementation="eager").train()
    config = {
        "train_batch_size": BATCH,
        "gradient_clipping": CLIPPING,
        "optimizer": {"type": "AdamW", "params": {**ADAMW, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
    if load:
        path, _ = engine.load_checkpoint(load, load_lr_scheduler_states=False)
        assert path is not None
    losses = []
    for step in range(engine.global_steps, last):
        loss = loss_of(engine, slice(step * BATCH, (step + 1) * BATCH))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    if save:
        engine.save_checkpoint(save)
    return losses


def run_deepspeed(folder: Path, runs: list[list]) -> list[list[float]]:
    """Runs train_with_deepspeed() with each of these arguments, in one process."""
    pytest.importorskip("deepspeed")
    environment = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + os.getpid() % 20000),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"), "1"),
        **dict.fromkeys(("RANK", "LOCAL_RANK"), "0"),
        "DS_ACCELERATOR": "cpu",
        "PYTHONPATH": str(Path(__file__).parent),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = [sys.executable, __file__, str(folder / "losses.json"), json.dumps(runs, default=str)]
    subprocess.run(command, env={**os.environ, **environment}, check=True, timeout=900, capture_output=True)
    return json.loads((folder / "losses.json").read_text())


Resumed = dict[tuple[bool, int], tuple[list[float], list[float], list[float]]]


def resume_each_others_files(folder: Path, cases: list[tuple[bool, int]]) -> Resumed:
    """By case: DeepSpeed's first losses, ours from its files, and its own from ours."""
    runs, ours = [], {}
    for gated, stage in cases:
        own = folder / f"{gated}{stage}"
        own.mkdir()
        tiny_model(own / "weights", gated)
        saved = T5Run(own / "saved", own / "weights", stage)
        saved.train(f"--max_steps={SAVED_AFTER}", "--checkpoint_format=deepspeed")
        runs.append([own / "weights", stage, SAVED_AFTER, "", own / "deepspeed"])
        runs.append([own / "weights", stage, STEPS, saved.checkpoints, ""])
        ours[gated, stage] = T5Run(own / "resumed", own / "weights", stage)
    losses = run_deepspeed(folder, runs)
    for run in ours.values():
        run.train(f"--resume_from_checkpoint={run.folder.parent / 'deepspeed'}")
    return {
        case: (losses[2 * i], [line["loss"] for line in run.steps()], losses[2 * i + 1])
        for i, (case, run) in enumerate(ours.items())
    }


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    return resume_each_others_files(tmp_path_factory.mktemp("resumed"), CASES)


@pytest.fixture(scope="module")
def resumed_at_night(tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    return resume_each_others_files(tmp_path_factory.mktemp("resumed"), NIGHTLY)


@pytest.mark.parametrize(
    ("case", "fixture"),
    [*((case, "resumed") for case in CASES), *(nightly(case, "resumed_at_night") for case in NIGHTLY)],
)
def test_each_resumes_from_the_others_files(
    tmp_path: Path, request: pytest.FixtureRequest, case: tuple[bool, int], fixture: str
) -> None:
    losses, _ = expected_steps(tiny_model(tmp_path / "weights", case[0]))
    before, ours, after = request.getfixturevalue(fixture)[case]
    assert before == pytest.approx(losses[:SAVED_AFTER], rel=1e-4)
    assert ours == pytest.approx(losses[SAVED_AFTER:], rel=1e-4)
    assert after == pytest.approx(losses[SAVED_AFTER:], rel=1e-4)


if __name__ == "__main__":
    import deepspeed

    # Its op for collectives over shared memory takes minutes to compile; gloo computes the same sums.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    Path(sys.argv[1]).write_text(json.dumps([train_with_deepspeed(*run) for run in json.loads(sys.argv[2])]))
    # DeepSpeed and torch leave threads that are never joined, which may make the interpreter's exit fail.
    os._exit(0)
