"""The walk-through's ZeRO-3 file, which leaves optimizer and scheduler to the Hugging Face Trainer, with the Trainer's
flags: the Trainer's numbers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from tiny_run import TinyRun
from trainer import BUILD, REPOSITORY

pytestmark = pytest.mark.e2e

WALK_THROUGH = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 10,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": False,
    },
    "wall_clock_breakdown": False,
}
# Missing there as well.
NOTHING = {"optimizer": None, "scheduler": None}
FLAGS = [
    *["--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2", "--learning_rate", "2e-5"],
    *["--adam_beta1", "0.9", "--adam_beta2", "0.999", "--weight_decay", "0", "--max_grad_norm", "1.0"],
    *["--gradient_checkpointing", "True", "--save_total_limit", "1", "--logging_steps", "10"],
]


def trainer_rates(**case: object) -> list[float]:
    """The rates of transformers' own schedule, update by update: tests/parallel/make_lr_schedules.py."""
    fixture = REPOSITORY / "tests" / "parallel" / "fixtures" / "trainer_lr_schedules.json"
    [found] = [test for test in json.loads(fixture.read_text())["cases"] if case.items() <= test.items()]
    return found["rates"]


def setting(output: str, name: str) -> str:
    """The line of a setting in the table at the start, with single blanks."""
    [line] = [line for line in output.splitlines() if line.startswith(f"  {name}  ")]
    return " ".join(line.split())


def states(run: TinyRun, kind: str) -> np.ndarray:
    """A state of all units, from all ranks' files."""
    values = []

    def take(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and name.split("/")[-1] == kind:
            values.append(item[...].ravel())

    for path in sorted(run.latest.glob("*optim_states.h5")):
        with h5py.File(path) as file:
            file.visititems(take)
    return np.concatenate(values)


def test_linear_decay(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, config={**WALK_THROUGH, **NOTHING})
    result = run.train(*FLAGS, "--lr_scheduler_type", "linear", "--max_steps", "50")
    expected = trainer_rates(type="linear", lr=2e-5, warmup_steps=0, steps=50)
    assert [line["lr"] for line in run.metrics()] == pytest.approx(expected, rel=1e-12)
    assert "mpzero's defaults apply" not in result.stderr
    assert setting(result.stdout, "schedule") == "schedule linear, lr 2e-05 to 0 flag: --lr_scheduler_type"
    assert setting(result.stdout, "beta2") == "beta2 0.999 flag: --adam_beta2"
    assert setting(result.stdout, "weight decay").startswith("weight decay 0 on all parameters flag: --weight_decay")
    assert setting(result.stdout, "global batch").startswith("global batch 8 = 2 x 2 x 2 ranks")
    assert [folder.name for folder in run.checkpoints.glob("tiny-*")] == ["tiny-50steps"]


def test_beta2_of_the_flag_is_what_the_moments_have(tmp_path: Path) -> None:
    """After one update they are (1 - beta1) g and (1 - beta2) g^2."""
    run = TinyRun(tmp_path, config={**WALK_THROUGH, **NOTHING})
    run.train(*FLAGS, "--lr_scheduler_type", "linear", "--max_steps", "1")
    first, second = states(run, "exp_avg").astype(np.float64), states(run, "exp_avg_sq").astype(np.float64)
    sizable = np.abs(first) > 1e-6
    assert sizable.sum() > 1000
    assert second[sizable] * 0.1**2 / first[sizable] ** 2 == pytest.approx(0.001, rel=1e-3)


def weights(run: TinyRun) -> dict[str, np.ndarray]:
    subprocess.run(
        [BUILD / "bin" / "zero_to_fp32", run.checkpoints, run.folder / "fp32", "--format=hdf5"],
        check=True,
        capture_output=True,
    )
    found = {}
    for path in (run.folder / "fp32").glob("*.h5"):
        with h5py.File(path) as file:
            file.visititems(
                lambda name, item: found.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None
            )
    return found


def test_norms_without_decay(tmp_path: Path) -> None:
    """A first update of AdamW changes weights to (1 - lr decay) w - lr sign(g). Norms begin at 1: if they are excluded,
    they differ by the decay from those of a run that decays everything. All other weights have the same bits."""
    optimizer = {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.5}}
    after = {}
    for flags in [(), ("--no_decay=norm,bias",)]:
        folder = tmp_path / f"run{len(flags)}"
        run = TinyRun(folder, stage=3, config={"optimizer": optimizer, "scheduler": None})
        result = run.train("--max_steps=1", "--lr_scheduler_type=constant", *flags)
        after[flags] = weights(run)
        if flags:
            assert "--no_decay bias matches no parameter of the model." in result.stderr
            assert "on all but norm, bias" in setting(result.stdout, "weight decay")
    everywhere, excluded = after.values()
    assert len(everywhere) == 24
    for name, values in everywhere.items():
        if "norm" in name:
            assert excluded[name] - values == pytest.approx(np.full(values.shape, 0.005), abs=1e-6)
        else:
            assert np.array_equal(excluded[name], values)


def test_a_name_that_no_parameter_has(tmp_path: Path) -> None:
    result = TinyRun(tmp_path).train("--max_steps=1", "--no_decay=nrom", check=False)
    assert result.returncode == 2
    assert "--no_decay nrom matches no parameter of the model" in result.stderr
