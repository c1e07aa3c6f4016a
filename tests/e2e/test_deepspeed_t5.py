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


def train_with_deepspeed(weights: Path, stage: int, last: int, load: str, save: str) -> list[float]:
    """Steps up to `last`, without dropout; load and save: a folder of checkpoints, or empty."""
    import deepspeed
    import torch
    import transformers

    # Its op for collectives over shared memory takes minutes to compile; gloo computes the same sums.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
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
    torch.distributed.destroy_process_group()
    return losses


def run_deepspeed(folder: Path, *arguments) -> list[float]:
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
    command = [sys.executable, __file__, folder / "losses.json", *arguments]
    subprocess.run(
        list(map(str, command)), env={**os.environ, **environment}, check=True, timeout=900, capture_output=True
    )
    return json.loads((folder / "losses.json").read_text())


@pytest.mark.parametrize(("gated", "stage"), [(False, 3), (True, 2), nightly(False, 2), nightly(True, 3)])
def test_each_resumes_from_the_others_files(tmp_path: Path, gated: bool, stage: int) -> None:
    losses, _ = expected_steps(tiny_model(tmp_path / "weights", gated))
    weights, theirs = tmp_path / "weights", tmp_path / "deepspeed"
    before = run_deepspeed(tmp_path, weights, stage, SAVED_AFTER, "", theirs)
    assert before == pytest.approx(losses[:SAVED_AFTER], rel=1e-4)
    ours = T5Run(tmp_path / "resumed", weights, stage)
    ours.train(f"--resume_from_checkpoint={theirs}")
    assert [line["loss"] for line in ours.steps()] == pytest.approx(losses[SAVED_AFTER:], rel=1e-4)

    saved = T5Run(tmp_path / "saved", weights, stage)
    saved.train(f"--max_steps={SAVED_AFTER}", "--checkpoint_format=deepspeed")
    after = run_deepspeed(tmp_path, weights, stage, STEPS, saved.checkpoints, "")
    assert after == pytest.approx(losses[SAVED_AFTER:], rel=1e-4)


if __name__ == "__main__":
    result, weights, stage, last, load, save = sys.argv[1:]
    losses = train_with_deepspeed(Path(weights), int(stage), int(last), load, save)
    Path(result).write_text(json.dumps(losses))
    # DeepSpeed and torch leave threads that are never joined, which may make the interpreter's exit fail.
    os._exit(0)
