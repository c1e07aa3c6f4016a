"""Random chains of resumes under mpirun against resume_model.py.

The learning rate is so small that no weight changes: a step's loss is the mean of its sequences' losses, which one run
of batch 1 records, and so tells which sequences the step has read. RESUME_CASES sets how many chains run."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from resume_model import NUM_TOKENS, RefusedError, Run, Start, begin, resume
from tiny_run import MODEL, VOCAB_SIZE
from trainer import metrics, train, write_tokens

pytestmark = pytest.mark.e2e

PEAK = 1e-12
SEQ_LENGTHS = (8, 16)
EPOCHS = 6  # that the recorded orders cover
CASES = int(os.environ.get("RESUME_CASES", "200" if os.environ.get("NIGHTLY") == "1" else "30"))
# Another layout adds up the same losses in another order.
FP32_TOLERANCE = 1e-5

Losses = dict[tuple[int, bool], list[float]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags that all runs share. Large initial weights, so that each sequence has a loss of its own."""
    folder = tmp_path_factory.mktemp("inputs")
    data = write_tokens(folder / "train.h5", np.random.default_rng(1).integers(0, VOCAB_SIZE, NUM_TOKENS), VOCAB_SIZE)
    (folder / "model.json").write_text(json.dumps({**MODEL, "initializer_range": 0.3}))
    return [f"--train_data={data}", f"--model_config={folder / 'model.json'}", "--device=cpu"]


@pytest.fixture(scope="module")
def losses(inputs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Losses:
    """The loss at each position of EPOCHS epochs, by seq_length and shuffle."""
    found = {}
    for seq_length in SEQ_LENGTHS:
        for shuffle in (False, True):
            folder = tmp_path_factory.mktemp("losses")
            flags = [f"--seq_length={seq_length}", f"--shuffle={str(shuffle).lower()}", f"--epochs={EPOCHS}"]
            flags += ["--train_micro_batch_size_per_gpu=1", f"--learning_rate={PEAK}", "--save_strategy=no"]
            flags += ["--bf16=false"]
            train(*inputs, *flags, f"--checkpoint_dir={folder}", f"--metrics_file={folder / 'metrics.jsonl'}")
            by_position = [line["loss"] for line in metrics(folder / "metrics.jsonl")]
            epochs = [by_position[begin :: NUM_TOKENS // seq_length] for begin in range(2)]
            # The weights stay as they are: in file order each epoch has the first one's losses, bit by bit.
            assert all(len(set(losses)) == (EPOCHS if shuffle else 1) for losses in epochs)
            found[seq_length, shuffle] = by_position
    return found


def draw_batch(rng: random.Random, start: Start) -> Start:
    return replace(start, batch=rng.choice([1, 2, 3, 4, 6]))


def draw_first(rng: random.Random) -> tuple[Start, Run]:
    epochs = rng.choice([None, 1, 2])
    start = Start(
        scheduler=rng.choice(["linear", "cosine", "constant_with_warmup", "warmup_stable_decay"]),
        warmup=rng.choice([0, 1, 3, 5]),
        max_steps=rng.randint(6, 16) if epochs is None else None,
        epochs=epochs,
        batch=1,
        seq_length=rng.choice(SEQ_LENGTHS),
        shuffle=rng.random() < 0.5,
    )
    start = draw_batch(rng, start)
    try:
        return start, begin(start, PEAK)
    except RefusedError:
        return draw_first(rng)


def draw_next(rng: random.Random, start: Start, step: int) -> Start:
    if rng.random() < 0.6:
        start = draw_batch(rng, start)
    if rng.random() < 0.3:
        start = replace(start, seq_length=rng.choice(SEQ_LENGTHS))
    if rng.random() < 0.5:
        if start.epochs is None:
            start = replace(start, max_steps=step + rng.randint(1, 12))
        else:
            start = replace(start, epochs=rng.choice([1, 2, 3]))
    if rng.random() < 0.3:
        start = replace(start, way=rng.choice(["keep", "rewarm", "extend"]))
    return start


class Chain:
    """The starts of one case in one folder."""

    def __init__(self, rng: random.Random, inputs: list[str], folder: Path) -> None:
        self.rng, self.inputs, self.folder = rng, inputs, folder

    def train(self, start: Start, stop: int | None, accepted: bool) -> None:
        """Trains to the end, then removes what a run that was killed after saving step `stop` would not have left."""
        rng, folder = self.rng, self.folder
        divisors = [ranks for ranks in (1, 2, 3) if start.batch % ranks == 0]
        ranks = rng.choice(divisors)
        micro_batch = rng.choice([size for size in range(1, 7) if start.batch // ranks % size == 0])
        config = {
            "zero_optimization": {"stage": rng.randint(0, 3)},
            "train_micro_batch_size_per_gpu": micro_batch,
            "gradient_accumulation_steps": start.batch // ranks // micro_batch,
            "optimizer": {"type": "AdamW", "params": {"lr": PEAK}},
            "bf16": {"enabled": False},
        }
        (folder / "ds_config.json").write_text(json.dumps(config))
        flags = [f"--deepspeed_config={folder / 'ds_config.json'}", f"--lr_scheduler_type={start.scheduler}"]
        flags += [f"--warmup_steps={start.warmup}", f"--seq_length={start.seq_length}"]
        flags += [f"--shuffle={str(start.shuffle).lower()}", f"--checkpoint_format={rng.choice(['hdf5', 'deepspeed'])}"]
        flags += [f"--max_steps={start.max_steps}"] if start.epochs is None else [f"--epochs={start.epochs}"]
        flags += [f"--schedule_on_resume={start.way}"] if start.way else []
        flags += ["--save_strategy=epoch"] if stop is None else [f"--checkpoint_freq={stop}"]
        flags += [f"--checkpoint_dir={self.checkpoints}", f"--metrics_file={self.metrics_file}"]
        print(f"mpirun -n {ranks} mpzero train {' '.join(flags)}  # {json.dumps(config)}, until {stop}")
        result = train(*self.inputs, *flags, ranks=ranks, check=accepted)
        if not accepted:
            # A finished run ends with status 0.
            assert result.returncode in (0, 2)
        elif stop is not None:
            for path in self.checkpoints.glob("model-*steps"):
                if int(path.name.removeprefix("model-").removesuffix("steps")) > stop:
                    shutil.rmtree(path)
            (self.checkpoints / "latest").write_text(f"model-{stop}steps\n")

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def metrics_file(self) -> Path:
        return self.folder / "metrics.jsonl"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"model-{step}steps"


def sequences_seen(checkpoint: Path) -> int:
    hdf5 = checkpoint / "mp_rank_00_model_states.h5"
    if hdf5.exists():
        with h5py.File(hdf5) as file:
            return int(file.attrs["windows_seen"])
    # Of each rank at stage 3.
    states = min(checkpoint.glob("*mp_rank_00_model_states.pt"))
    return torch.load(states, weights_only=True, mmap=True)["mpzero"]["windows_seen"]


def check_steps(run: Run, steps: list[dict], losses: list[float]) -> None:
    """Each step's sequences, rate and tokens, and where the run ends."""
    assert [line["step"] for line in steps] == list(range(run.step + 1, run.last_step + 1))
    for line in steps:
        sequences = run.sequences(line["step"])
        assert math.isclose(line["lr"], run.schedule.rate(line["step"]), rel_tol=1e-9, abs_tol=1e-15 * PEAK), line
        tokens = run.tokens + (line["step"] - run.step) * run.start.batch * run.start.seq_length
        assert line["tokens"] == tokens, line
        if sequences.stop <= len(losses):
            mean = sum(losses[index] for index in sequences) / len(sequences)
            assert math.isclose(line["loss"], mean, rel_tol=FP32_TOLERANCE), line


@pytest.mark.parametrize("seed", range(CASES))
def test_a_random_chain_of_resumes_follows_the_model(
    seed: int, tmp_path: Path, inputs: list[str], losses: Losses
) -> None:
    rng = random.Random(seed)
    start, run = draw_first(rng)
    chain = Chain(rng, inputs, tmp_path)
    steps: list[dict] = []
    segments = rng.randint(2, 3)
    for segment in range(segments):
        is_last = segment == segments - 1
        stop = None if is_last or run is None else rng.randint(run.step + 1, run.last_step)
        chain.train(start, stop, accepted=run is not None)
        before, steps = steps, metrics(chain.metrics_file)
        if run is None:
            assert steps == before[: len(steps)]
            return
        check_steps(run, [line for line in steps if line["step"] > run.step], losses[start.seq_length, start.shuffle])
        saved = stop or run.last_step
        assert sequences_seen(chain.checkpoint(saved)) == run.sequences(saved).stop
        if is_last:
            updates = range(run.step + 1, run.last_step + 1)
            saves = {update for update in updates if start.saves_epoch(run.sequences(update).stop)} | {run.last_step}
            assert {update for update in updates if chain.checkpoint(update).exists()} == saves
            return
        run.train_until(stop)
        start = draw_next(rng, start, stop)
        try:
            run = resume(run, start, PEAK)
        except RefusedError:
            run = None
