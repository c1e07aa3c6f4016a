"""The golden runs of tests/golden: with mpzero, and with stock DeepSpeed on the CPU."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from trainer import CACHE, GOLDEN, REPOSITORY, metrics, train, write_tokens

# Golden runs with what DeepSpeed saved in them, in deepspeed/ (tests/golden/make_tiny_runs.py).
SAVED_ZERO2, SAVED_BF16, SAVED_ZERO3 = "tiny-qwen3-zero2-fp32", "tiny-qwen3-zero2-bf16", "tiny-llama-zero3-fp32"
WITHOUT_ZERO = "tiny-qwen3-zero0-fp32"
WITHOUT_ZERO_BF16 = ("tiny-qwen3-zero0-bf16", "tiny-llama-zero0-fused")
DEEPSPEED_RUN = REPOSITORY / "tests" / "interop" / "deepspeed_run.py"


def nightly(*values: object) -> object:
    """A row of parametrize() that runs only where NIGHTLY=1 is set."""
    return pytest.param(*values, marks=pytest.mark.nightly)


FP32_TOLERANCE = 2e-5
BF16_TOLERANCE = 1e-2


def train_golden(
    name: str,
    folder: Path,
    *flags: object,
    ranks: int,
    stage: int,
    zero: dict | None = None,
    offload: bool = False,
    device: str = "cpu",
) -> tuple[list[dict], subprocess.CompletedProcess[str]]:
    """Trains the golden run `name` with its global batch on `ranks` ranks; returns the metrics of its steps.

    `zero`: more of its zero_optimization; `offload`: the optimizer is in host memory.
    """
    golden = GOLDEN / name
    trace = json.loads((golden / "trace.json").read_text())
    model = json.loads((golden / "init" / "config.json").read_text())
    config = json.loads((golden / "ds_config.json").read_text())
    samples = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * trace["ranks"]
    micro_batch = config["train_micro_batch_size_per_gpu"] if ranks <= trace["ranks"] else 1
    assert samples % (micro_batch * ranks) == 0
    config["train_micro_batch_size_per_gpu"] = micro_batch
    config["gradient_accumulation_steps"] = samples // (micro_batch * ranks)
    config["zero_optimization"] = {"stage": stage, **(zero or {})}
    if offload:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ds_config.json").write_text(json.dumps(config))
    data = write_tokens(folder / "tokens.h5", np.load(golden / "tokens.npy"), model["vocab_size"])
    metrics_file = folder / "metrics.jsonl"
    result = train(
        f"--deepspeed_config={folder / 'ds_config.json'}",
        f"--model_config={golden / 'init' / 'config.json'}",
        *([f"--init_from={golden / 'init'}"] if (golden / "init" / "model.safetensors").exists() else []),
        f"--train_data={data}",
        f"--seq_length={trace['seq_length']}",
        "--shuffle=false",
        "--checkpoint_freq=0",
        f"--checkpoint_dir={folder / 'checkpoints'}",
        f"--metrics_file={metrics_file}",
        f"--device={device}",
        *(
            flags
            if any("--max_steps" in str(flag) for flag in flags)
            else [*flags, f"--max_steps={len(trace['trace'])}"]
        ),
        ranks=ranks,
    )
    return metrics(metrics_file), result


def train_with_deepspeed(folder: Path, *runs: tuple[str, int, Sequence[object]], ranks: int) -> list[list[dict]]:
    """Runs tests/interop/deepspeed_run.py with the name, stage and flags of each run, in processes that start once;
    returns the steps of each. Skips the test where DeepSpeed is not installed."""
    pytest.importorskip("deepspeed")
    words, results = [sys.executable, DEEPSPEED_RUN], [folder / f"result{i}.json" for i in range(len(runs))]
    for result, (name, stage, flags) in zip(results, runs, strict=True):
        words += ["--then"] if result != results[0] else []
        words += [GOLDEN / name, result, "--ranks", ranks, "--stage", stage, *flags]
    operators = deepspeed_operators() if "--cpu_adam" in words else contextlib.nullcontext(CACHE)
    with operators as extensions, (folder / "deepspeed.log").open("w+") as log:
        environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(extensions)}
        # In its own session, so that no rank outlives the test.
        process = subprocess.Popen([*map(str, words)], stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            process.wait(timeout=600)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        assert process.returncode == 0, log.read()[-6000:]
    return [json.loads(result.read_text()) for result in results]


def saved_by_deepspeed(name: str) -> Path:
    """The folder of checkpoints that DeepSpeed wrote in the golden run `name`."""
    folder = GOLDEN / name / "deepspeed"
    assert (folder / "latest").exists()
    return folder


@contextlib.contextmanager
def deepspeed_operators() -> Iterator[Path]:
    """A folder for the operators that DeepSpeed compiles at first use, for one test at a time.

    PyTorch guards such a folder with a lock file that remains when a build is killed; the next process waits forever
    for its removal. Here no other process builds, so an existing lock file is from a killed build.
    """
    folder = CACHE / "torch_extensions"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "in_use").open("w") as in_use:
        fcntl.flock(in_use, fcntl.LOCK_EX)
        for left_over in folder.rglob("lock"):
            left_over.unlink()
        yield folder


def assert_follows(
    name: str, steps: list[dict], tolerance: float, *, first: int = 1, norm_tolerance: float | None = None
) -> None:
    """`steps` are those of the golden trace from step `first` to its end; `norm_tolerance` is the gradient norm's."""
    trace = json.loads((GOLDEN / name / "trace.json").read_text())["trace"]
    expected = trace[first - 1 :]
    assert [step["step"] for step in steps] == [step["step"] for step in expected]
    for ours, theirs in zip(steps, expected, strict=True):
        lr = ours["lr"] if "lr" in ours else ours["lr_applied"]
        assert lr == pytest.approx(theirs["lr_applied"], rel=1e-9, abs=1e-15), ours
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=tolerance), (ours, theirs)
        if theirs["grad_norm"] is None:  # of fp32 without ZeRO
            continue
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=norm_tolerance or tolerance), (ours, theirs)
