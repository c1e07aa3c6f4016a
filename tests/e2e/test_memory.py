"""Memory: the effect of recomputation, plan and measurement on a GPU, the message of a run that does not fit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny_run import MODEL, TinyRun
from trainer import num_gpus

pytestmark = pytest.mark.e2e
needs_gpu = pytest.mark.skipif(num_gpus() == 0, reason="no GPU")

GIB = 2**30

# Layers that keep 0.7 GiB each at 16,384 tokens, with 1.1 GiB of states: 4.3 GiB in total, 2.4 GiB with --recompute
# full, 1.9 GiB with --recompute host.
WIDE = [
    "--hidden_size=1024",
    "--intermediate_size=4096",
    "--num_hidden_layers=4",
    "--num_attention_heads=8",
    "--num_key_value_heads=8",
    "--head_dim=128",
    "--max_steps=3",
    "--validation_freq=0",
]

HOLD = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def memory_left(gibibytes: float) -> Iterator[None]:
    """Another process uses all but this much of the first GPU."""
    words = [sys.executable, "-c", HOLD, str(int(gibibytes * GIB))]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.communicate()


def wide_run(folder: Path) -> TinyRun:
    return TinyRun(folder, ranks=1, micro_batch=1024, bf16=True, device="cuda")


def planned_total(run: TinyRun, level: str) -> float:
    """The GiB that the plan needs at this level, including CUDA's context, whose size depends on the GPU."""
    output = run.train(*WIDE, f"--recompute={level}").stdout
    found = re.search(r"^  total +([\d.]+) GiB +of ", output, re.MULTILINE)
    assert found, output
    return float(found[1])


def planned_and_measured(output: str) -> tuple[float, float]:
    found = re.search(r"Peak memory: planned ([\d.]+) GiB, measured ([\d.]+) GiB \(allocated; reserved", output)
    assert found, output
    return float(found[1]), float(found[2])


@pytest.mark.parametrize("saving", [(), ("--checkpoint_freq=0",)])
def test_the_processes_of_a_cpu_run_stay_within_its_plan(tmp_path: Path, saving: tuple[str, ...]) -> None:
    """Tensors, the allocator's cache, programs and libraries. Checkpoints add a copy of the states, if it fits."""
    run = TinyRun(tmp_path, ranks=2, micro_batch=64)
    wide = [*WIDE, *saving]
    dry = run.train(*wide, "--dry_run").stdout
    found = re.search(r"Memory per host \(CPU run\): about ([\d.]+) GiB for 2 ranks", dry)
    assert found, dry
    run.train(*wide)
    measured = 2 * max(line["peak_memory_bytes"] for line in run.metrics()) / GIB
    states = float(re.search(r"optimizer states ([\d.]+) GiB", dry)[1])
    copies = 0 if saving else 2 * states
    assert 0.7 * float(found[1]) < measured < 1.02 * (float(found[1]) + copies)


def test_recomputation_changes_no_bit_on_the_cpu(tmp_path: Path) -> None:
    steps = {}
    for level in ("none", "selective", "attention", "full", "auto"):
        run = TinyRun(tmp_path / level, bf16=True)
        output = run.train("--max_steps=4", f"--recompute={level}").stdout
        assert "GPU memory" not in output
        found = re.search(r"Peak memory: planned ([\d.]+) GiB, measured ([\d.]+) GiB \(tensors; process:", output)
        assert found and abs(float(found[1]) - float(found[2])) <= 0.01, output
        steps[level] = [(line["loss"], line["grad_norm"]) for line in run.metrics()]
        assert all(0 < line["peak_allocated_bytes"] < line["peak_memory_bytes"] for line in run.metrics())
    assert len(steps["none"]) == 4
    assert steps["selective"] == steps["none"]
    assert steps["attention"] == steps["none"]
    assert steps["full"] == steps["none"]
    assert steps["auto"] == steps["none"]


@pytest.mark.parametrize("stage", [1, 2])
def test_the_plan_of_several_micro_batches_matches_the_cpu(tmp_path: Path, stage: int) -> None:
    """The head's two chunks are summed in fp32 beside a gradient in bf16: at ZeRO-2 in 12 of 98 MiB."""
    run = TinyRun(tmp_path, stage=stage, bf16=True, micro_batch=4, seq_length=32)
    (tmp_path / "tiny.json").write_text(json.dumps({**MODEL, "vocab_size": 100000, "tie_word_embeddings": False}))
    output = run.train("--max_steps=2", "--validation_freq=0").stdout
    found = re.search(r"Peak memory: planned ([\d.]+) GiB, measured ([\d.]+) GiB \(tensors; process:", output)
    assert found, output
    planned, measured = float(found[1]), float(found[2])
    assert measured > 0.09
    assert abs(planned - measured) <= 0.011


@needs_gpu
@pytest.mark.parametrize("level", ["none", "selective", "attention", "full", "tiled", "host_attention", "host"])
def test_the_plan_matches_the_measurement(tmp_path: Path, level: str) -> None:
    run = wide_run(tmp_path)
    result = run.train(*WIDE, f"--recompute={level}")
    assert f"recompute {level} x 4" in result.stdout
    planned, measured = planned_and_measured(result.stdout)
    assert abs(planned - measured) <= 0.05 * measured, result.stdout
    last = run.metrics()[-1]
    assert last["peak_allocated_bytes"] <= last["peak_memory_bytes"]


@needs_gpu
def test_released_gradients_change_no_bit_and_match_the_plan(tmp_path: Path) -> None:
    steps, measured = {}, {}
    for release in (False, True):
        offload = {"device": "cpu", "release_gradients": release}
        config = {"gradient_accumulation_steps": 1, "zero_optimization": {"stage": 3, "offload_optimizer": offload}}
        run = TinyRun(tmp_path / str(release), ranks=1, micro_batch=64, bf16=True, device="cuda", config=config)
        wide = [flag.replace("layers=4", "layers=16").replace("steps=3", "steps=6") for flag in WIDE]
        output = run.train(*wide, "--deterministic").stdout
        assert ("copied to the host" in output) == release
        planned, measured[release] = planned_and_measured(output)
        assert abs(planned - measured[release]) <= 0.05 * measured[release] + 0.01, output
        steps[release] = [(line["loss"], line["grad_norm"]) for line in run.metrics()]
    assert len(steps[True]) == 6
    assert steps[True] == steps[False]
    # 16 layers have 0.5 GiB of gradients, of which two stay.
    assert measured[False] - measured[True] > 0.4


def test_a_cpu_run_warns_once_that_it_releases_no_gradients(tmp_path: Path) -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu", "release_gradients": True}}
    run = TinyRun(tmp_path, config={"gradient_accumulation_steps": 1, "zero_optimization": zero})
    for flag in ("--dry_run", "--validation_freq=0"):
        warnings = run.train("--max_steps=1", flag).stderr.splitlines()
        assert sum("release_gradients" in line for line in warnings) == 1, warnings


def test_tiles_of_the_mlp_train_as_all_tokens_at_once(tmp_path: Path) -> None:
    steps = {}
    for level in ("full", "tiled"):
        # 10,240 tokens in two tiles; on two ranks, and added to the gradients of another micro-batch.
        run = TinyRun(tmp_path / level, stage=3, micro_batch=640)
        run.train("--max_steps=2", f"--recompute={level}")
        steps[level] = [(line["loss"], line["grad_norm"]) for line in run.metrics()]
    assert len(steps["full"]) == 2
    assert steps["tiled"] != steps["full"]  # sums in another order
    for tiled, full in zip(steps["tiled"], steps["full"], strict=True):
        assert tiled == pytest.approx(full, rel=1e-4)


@pytest.mark.parametrize(
    ("flags", "config"), [(["--lora_r=2"], {}), ([], {"fp8": {"enabled": True}, "bf16": {"enabled": True}})]
)
def test_tiles_are_refused_where_they_do_not_exist(flags: list[str], config: dict, tmp_path: Path) -> None:
    run = TinyRun(tmp_path, config=config)
    result = run.train("--max_steps=1", "--recompute=tiled", *flags, check=False)
    assert result.returncode == 2
    assert "--recompute tiled does not support" in result.stderr


def test_inputs_on_the_host_train_as_tiles_also_with_adapters_and_fp8(tmp_path: Path) -> None:
    def steps(name: str, *flags: str, config: dict | None = None) -> list[tuple[float, float]]:
        run = TinyRun(tmp_path / name, stage=3, micro_batch=640, config=config or {})
        result = run.train("--max_steps=2", *flags)
        assert ("equivalent to --recompute tiled" in result.stderr) == name.startswith("host")
        return [(line["loss"], line["grad_norm"]) for line in run.metrics()]

    tiled = steps("tiled", "--recompute=tiled")
    assert len(tiled) == 2
    assert steps("host", "--recompute=host") == tiled
    assert steps("host_attention", "--recompute=host_attention") == tiled
    key = {"activation_checkpointing": {"cpu_checkpointing": True}}
    assert steps("host_by_key", config=key) == tiled
    assert steps("host_lora", "--recompute=host", "--lora_r=2") == steps("lora", "--recompute=full", "--lora_r=2")
    fp8 = {"fp8": {"enabled": True}, "bf16": {"enabled": True}}
    assert steps("host_fp8", "--recompute=host", config=fp8) == steps("fp8", "--recompute=full", config=fp8)


def test_a_flag_that_contradicts_cpu_checkpointing_is_refused(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, config={"activation_checkpointing": {"cpu_checkpointing": True}})
    result = run.train("--max_steps=1", "--recompute=full", check=False)
    assert result.returncode == 2
    assert "activation_checkpointing.cpu_checkpointing" in result.stderr


@needs_gpu
def test_auto_keeps_all_if_it_fits(tmp_path: Path) -> None:
    assert "recompute none x 4" in wide_run(tmp_path).train(*WIDE).stdout


@needs_gpu
def test_auto_recomputes_if_memory_is_short(tmp_path: Path) -> None:
    # All activations fit, but not the margin.
    with memory_left(planned_total(wide_run(tmp_path / "plan"), "none")):
        result = wide_run(tmp_path / "run").train(*WIDE)
    assert "recompute none x 4" not in result.stdout
    assert re.search(r"recompute .*(selective|full|tiled|host) x \d", result.stdout), result.stdout


def refusal(run: TinyRun, *flags: str) -> str:
    result = run.train(*WIDE, *flags, check=False)
    assert result.returncode == 2, result.stdout + result.stderr
    sentences = [line for line in result.stderr.splitlines() if line.startswith("mpzero: error: ")]
    assert len(sentences) == 1, result.stderr
    return sentences[0]


@needs_gpu
def test_out_of_memory_in_a_step_names_what_would_fit(tmp_path: Path) -> None:
    with memory_left(planned_total(wide_run(tmp_path / "plan"), "none") - 0.4):
        sentence = refusal(wide_run(tmp_path / "run"), "--recompute=none")
    assert "out of GPU memory while training" in sentence
    assert re.search(r"[\d.]+ GiB requested, [\d.]+ GiB of [\d.]+ GiB free", sentence)
    for part in ("parameters", "gradients", "optimizer states", "activations", "workspace"):
        assert re.search(rf"{part} [\d.]+ GiB", sentence)
    assert re.search(r"--recompute (selective|full) \(saves [\d.]+ GiB\)", sentence)
    assert ", or train_micro_batch_size_per_gpu " in sentence


@needs_gpu
def test_auto_that_does_not_fit_is_reported_before_the_first_step(tmp_path: Path) -> None:
    with memory_left(planned_total(wide_run(tmp_path / "plan"), "host") - 0.1):
        sentence = refusal(wide_run(tmp_path / "run"))
    assert re.search(r"needs [\d.]+ GiB of GPU memory", sentence)
    assert "set train_micro_batch_size_per_gpu " in sentence


@needs_gpu
def test_states_that_do_not_fit_are_reported_before_the_first_step(tmp_path: Path) -> None:
    # 0.8 GiB of the plan are activations and workspace, so 0.3 GiB are missing for the states.
    with memory_left(planned_total(wide_run(tmp_path / "plan"), "host") - 1.1):
        sentence = refusal(wide_run(tmp_path / "run"))
    assert "out of GPU memory while allocating the training state" in sentence
    assert "optimizer states" in sentence
