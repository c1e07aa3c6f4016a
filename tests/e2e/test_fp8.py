"""Layers in FP8: on the CPU, the same recipe as on a GPU, product by product.

The oracle is the run in bf16: near it in losses. Ranks, recomputation, resumes and reruns have the bits that they have
in bf16.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_run import TinyRun
from trainer import BUILD

pytestmark = pytest.mark.e2e

STEPS = "--max_steps=12"


def run_of(folder: Path, recipe: str | None, ranks: int = 1, stage: int = 2, **fp8: object) -> TinyRun:
    config = {"fp8": {"enabled": True, "recipe": recipe, **fp8}} if recipe else {}
    return TinyRun(folder, ranks=ranks, stage=stage, micro_batch=4 // ranks, bf16=True, config=config)


def losses(run: TinyRun, *flags: object) -> np.ndarray:
    run.train(STEPS, *flags)
    return np.array([step["loss"] for step in run.metrics()])


def bits(run: TinyRun, *flags: object) -> np.ndarray:
    """Loss and norm of the gradient, which show what the losses of a tiny model round away."""
    run.train(STEPS, *flags)
    return np.array([(step["loss"], step["grad_norm"]) for step in run.metrics()])


@pytest.fixture(scope="module")
def in_bf16(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return losses(run_of(tmp_path_factory.mktemp("bf16"), None))


@pytest.mark.parametrize(("recipe", "form"), [("tensorwise", "hybrid"), ("rowwise", "e4m3")])
def test_the_loss_falls_as_in_bf16(tmp_path: Path, in_bf16: np.ndarray, recipe: str, form: str) -> None:
    run = run_of(tmp_path, recipe, format=form)
    made = losses(run)
    assert in_bf16[-1] < in_bf16[0] - 0.3
    # What the layers add is rounded to 4 bits, the loss of a model with random weights hardly depends on it.
    assert np.max(np.abs(made - in_bf16)) < 0.05
    assert np.max(np.abs(made - in_bf16)) > 0


@pytest.mark.parametrize("stage", [0, 3])
def test_stages_and_ranks_agree(tmp_path: Path, stage: int) -> None:
    """Weights are cast from full parameters, kept ones (0 to 2) as gathered ones (3)."""
    one = losses(run_of(tmp_path / "one", "tensorwise"))
    several = losses(run_of(tmp_path / "several", "tensorwise", ranks=2, stage=stage))
    # A rank's tensors have their own scales.
    np.testing.assert_allclose(several, one, rtol=5e-3)


# Ranks, ranks a node, overlap, further keys of zero_optimization.
GATHERS: list[tuple[int, int, bool, dict]] = [
    # Each use gathers anew.
    (3, 3, True, {"stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}),
    (4, 2, False, {"offload_optimizer": {"device": "cpu"}}),
    (4, 2, True, {"zero_quantized_weights": True}),
]


@pytest.mark.parametrize(("ranks", "ranks_per_node", "overlap", "zero"), GATHERS)
def test_gathered_codes_are_casts_of_gathered_weights(
    tmp_path: Path, ranks: int, ranks_per_node: int, overlap: bool, zero: dict
) -> None:
    """Stage 2 casts full weights after an update; stage 3 casts shards, with common scales, and gathers the codes."""

    def steps_of(name: str, stage: int, *flags: str, **fp8: object) -> list[tuple[float | None, ...]]:
        run = run_of(tmp_path / name, "tensorwise", ranks=ranks, **fp8)
        run.config["zero_optimization"] = {
            "stage": stage,
            "mics_shard_size": ranks_per_node,
            "overlap_comm": overlap,
            **zero,
        }
        result = run.train("--max_steps=5", f"--validation_data={run.data}", "--validation_freq=2", *flags)
        assert ("weights gathered in FP8" in result.stdout) == (stage == 3)
        return [(step["loss"], step["grad_norm"], step.get("validation_loss")) for step in run.metrics()]

    expected = steps_of("stage2", 2)
    assert [validated is not None for _, _, validated in expected] == [False, True, False, True, True]
    assert steps_of("stage3", 3) == expected
    assert steps_of("recomputed", 3, "--recompute=full") == expected
    # One layer is gathered in bf16, and of the other one product is.
    filtered = ["first", "layers.1.self_attn"]
    in_part = steps_of("stage2_in_part", 2, filter_fqns=filtered)
    assert in_part != expected
    assert steps_of("stage3_in_part", 3, filter_fqns=filtered) == in_part


def test_what_does_not_change_the_bits(tmp_path: Path) -> None:
    expected = bits(run_of(tmp_path / "a", "tensorwise"))
    for number, flags in enumerate(["--recompute=full", "--recompute=selective"]):
        assert np.array_equal(bits(run_of(tmp_path / f"b{number}", "tensorwise"), flags), expected)
    assert np.array_equal(bits(run_of(tmp_path / "c", "tensorwise", cache_weights=False)), expected)
    assert np.array_equal(bits(run_of(tmp_path / "d", None), "--fp8"), expected)
    assert np.array_equal(bits(run_of(tmp_path / "e", None), "--fp8", "tensorwise"), expected)
    assert not np.array_equal(bits(run_of(tmp_path / "f", None), "--fp8=rowwise"), expected)


def test_states_on_the_host_and_validation_change_no_bits(tmp_path: Path) -> None:
    """A validation casts the weights of a step before the step's own forward does."""
    expected = bits(run_of(tmp_path / "a", "tensorwise"))
    on_host = run_of(tmp_path / "b", "tensorwise")
    on_host.config["zero_optimization"] = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    assert np.array_equal(bits(on_host), expected)
    validated = run_of(tmp_path / "c", "tensorwise")
    flags = (f"--validation_data={validated.data}", "--validation_freq=2", "--logging_freq=1")
    assert np.array_equal(bits(validated, *flags), expected)
    found = [step["validation_loss"] for step in validated.metrics() if "validation_loss" in step]
    assert len(found) == 6
    assert found[-1] < found[0] - 0.3
    # What the forward found kept has its range in the metrics all the same.
    assert all(step["fp8"]["weight"]["down"]["max"][0] > 0 for step in validated.metrics())


def test_all_products_filtered_are_bf16(tmp_path: Path, in_bf16: np.ndarray) -> None:
    assert np.array_equal(losses(run_of(tmp_path, "tensorwise", filter_fqns=["self_attn", "mlp"])), in_bf16)


def test_a_run_goes_on_between_bf16_and_fp8(tmp_path: Path, in_bf16: np.ndarray) -> None:
    """Checkpoints are those of bf16; the change is said."""
    run = run_of(tmp_path, None)
    run.train("--max_steps=4")
    to_fp8 = run.train("--max_steps=8", "--fp8")
    assert "fp8 none -> tensorwise hybrid" in to_fp8.stdout
    back = run.train(STEPS)
    assert "fp8 tensorwise hybrid -> none" in back.stdout
    made = np.array([step["loss"] for step in run.metrics()])
    assert np.array_equal(made[:4], in_bf16[:4])
    assert np.max(np.abs(made - in_bf16)) < 0.05


@pytest.mark.parametrize(("recipe", "ranks", "stage"), [("rowwise", 1, 2), ("tensorwise", 2, 3)])
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, recipe: str, ranks: int, stage: int) -> None:
    expected = losses(run_of(tmp_path / "whole", recipe, ranks=ranks, stage=stage))
    run = run_of(tmp_path / "halves", recipe, ranks=ranks, stage=stage)
    run.train("--max_steps=5")
    changes = [line for line in run.train(STEPS).stdout.splitlines() if line.startswith("Changed since")]
    assert "fp8" not in "".join(changes)
    assert np.array_equal([step["loss"] for step in run.metrics()], expected)


def ranges(step: dict, kind: str, product: str, what: str = "max") -> list:
    return step["fp8"][kind][product][what]


def test_the_range_of_what_is_cast_is_in_the_metrics(tmp_path: Path) -> None:
    """In steps with a log line, by layer, over all ranks and micro-batches."""
    run = run_of(tmp_path / "one", "tensorwise", filter_fqns=["last"])
    run.train("--max_steps=5", "--logging_freq=2")
    steps = run.metrics()
    assert [step["step"] for step in steps if "fp8" in step] == [2, 4, 5]
    logged = steps[1]
    assert set(logged["fp8"]) == {"input", "weight", "gradient"}
    for kind in logged["fp8"]:
        for product in ("qkv", "output", "gate_up", "down"):
            first, last = ranges(logged, kind, product)
            assert first > 0
            assert last is None
    assert logged["fp8_down_input_max"] == pytest.approx(ranges(logged, "input", "down")[0], rel=1e-3)
    assert 0 <= logged["fp8_zero_share"] < 0.05
    in_bf16 = run_of(tmp_path / "none", None)
    in_bf16.train("--max_steps=1")
    assert "fp8" not in in_bf16.metrics()[0]


def with_outlier(folder: Path) -> Path:
    """Weights, in which one feature of the second layer's MLP is a million times larger than the others."""
    run, weights = run_of(folder / "donor", None), folder / "weights"
    run.train("--max_steps=1")
    subprocess.run([BUILD / "bin" / "zero_to_fp32", run.checkpoints, weights], check=True, capture_output=True)
    tensors = load_file(weights / "model.safetensors")
    for name in ("gate_proj", "up_proj"):
        tensors[f"model.layers.1.mlp.{name}.weight"][5] *= 1000
    tensors["model.layers.1.mlp.down_proj.weight"][:, 5] = 0
    save_file(tensors, weights / "model.safetensors", metadata={"format": "pt"})
    return weights


@pytest.mark.parametrize(("recipe", "ranks"), [("tensorwise", 2), ("rowwise", 1)])
def test_small_values_that_an_outlier_costs_are_warned_of_once(tmp_path: Path, recipe: str, ranks: int) -> None:
    weights = with_outlier(tmp_path)
    flags = [f"--init_from={weights}", "--max_steps=3", "--logging_freq=1", "--learning_rate=1e-12"]
    config = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-12}}}
    run = run_of(tmp_path / "run", recipe, ranks=ranks)
    run.config |= config
    result = run.train(*flags)
    said = [line for line in result.stderr.splitlines() if "FP8 underflow" in line]
    assert len(said) == 1
    assert "in step 1," in said[0]
    assert "down projection in layer 1 became 0" in said[0]
    assert '"model.layers.1.mlp.down_proj" in fp8.filter_fqns' in said[0]
    assert ("fp8.recipe rowwise" in said[0]) == (recipe == "tensorwise")
    shares = ranges(run.metrics()[0], "input", "down", "zero_share")
    assert shares[0] < 0.05 < shares[1]
    assert run.metrics()[0]["fp8_zero_share"] == pytest.approx(shares[1], rel=1e-3)
    # What the sentence asks for ends it.
    kept = run_of(tmp_path / "kept", recipe, ranks=ranks, filter_fqns=["model.layers.1.mlp.down_proj"])
    kept.config |= config
    assert "FP8 underflow" not in kept.train(*flags).stderr


def casts_of_a_step(run: TinyRun) -> int:
    run.train("--max_steps=3", "--profile_steps=3-3", f"--profile_dir={run.folder}")
    return next(run.folder.glob("*trace*")).read_text().count('"mpzero::fp8_cast"')


def test_kept_casts_of_weights_are_made_once_a_step(tmp_path: Path) -> None:
    layers, products, micro_batches = 2, 4, 2
    made = {
        cache: casts_of_a_step(run_of(tmp_path / str(cache), "tensorwise", cache_weights=cache))
        for cache in (True, "auto", False)
    }
    # Otherwise once in each pass of each micro-batch.
    assert made[False] - made[True] == layers * products * (2 * micro_batches - 1)
    assert made["auto"] == made[True]


def test_products_that_are_not_in_fp8_are_said(tmp_path: Path) -> None:
    none = run_of(tmp_path / "none", "tensorwise", filter_fqns=["weight"]).train("--max_steps=1").stderr
    assert "fp8.filter_fqns excludes all" in none
    odd = run_of(tmp_path / "odd", "tensorwise").train("--max_steps=1", "--intermediate_size=40").stderr
    assert "down [32, 40]" in odd and "multiples of 16" in odd
    assert "multiples of 16" not in run_of(tmp_path / "even", "tensorwise").train("--max_steps=1").stderr


def test_adapters_beside_products_in_fp8(tmp_path: Path) -> None:
    in_bf16 = losses(run_of(tmp_path / "bf16", None), "--lora_r=4")
    for stage in (2, 3):
        made = losses(run_of(tmp_path / str(stage), "tensorwise", ranks=2, stage=stage), "--lora_r=4")
        assert 0 < np.max(np.abs(made - in_bf16)) < 0.05
