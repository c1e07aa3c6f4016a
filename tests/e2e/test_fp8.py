"""Layers in FP8: on the CPU, the same recipe as on a GPU, product by product.

The oracle is the run in bf16: near it in losses. Ranks, recomputation, resumes and reruns have the bits that they have
in bf16.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusals import refuse
from tiny_run import TinyRun

pytestmark = pytest.mark.e2e

STEPS = "--max_steps=12"


def run_of(folder: Path, recipe: str | None, ranks: int = 1, stage: int = 2, **fp8: object) -> TinyRun:
    config = {"fp8": {"enabled": True, "recipe": recipe, **fp8}} if recipe else {}
    return TinyRun(folder, ranks=ranks, stage=stage, micro_batch=4 // ranks, bf16=True, config=config)


def losses(run: TinyRun, *flags: object) -> np.ndarray:
    run.train(STEPS, *flags)
    return np.array([step["loss"] for step in run.metrics()])


@pytest.fixture(scope="module")
def in_bf16(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return losses(run_of(tmp_path_factory.mktemp("bf16"), None))


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
@pytest.mark.parametrize("form", ["hybrid", "e4m3"])
def test_the_loss_falls_as_in_bf16(tmp_path: Path, in_bf16: np.ndarray, recipe: str, form: str) -> None:
    run = run_of(tmp_path, recipe, format=form)
    made = losses(run)
    assert in_bf16[-1] < in_bf16[0] - 0.3
    # What the layers add is rounded to 4 bits, the loss of a model with random weights hardly depends on it.
    assert np.max(np.abs(made - in_bf16)) < 0.05
    assert np.max(np.abs(made - in_bf16)) > 0


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_stages_and_ranks_agree(tmp_path: Path, stage: int) -> None:
    """Weights are cast from full parameters, kept ones (0 to 2) as gathered ones (3)."""
    one = losses(run_of(tmp_path / "one", "tensorwise"))
    several = losses(run_of(tmp_path / "several", "tensorwise", ranks=2, stage=stage))
    # A rank's tensors have their own scales.
    np.testing.assert_allclose(several, one, rtol=5e-3)


def test_what_does_not_change_the_bits(tmp_path: Path) -> None:
    expected = losses(run_of(tmp_path / "a", "tensorwise"))
    for number, flags in enumerate(["--recompute=full", "--recompute=selective"]):
        assert np.array_equal(losses(run_of(tmp_path / f"b{number}", "tensorwise"), flags), expected)
    assert np.array_equal(losses(run_of(tmp_path / "c", "tensorwise", cache_weights=False)), expected)
    assert np.array_equal(losses(run_of(tmp_path / "d", None), "--fp8"), expected)
    assert np.array_equal(losses(run_of(tmp_path / "e", None), "--fp8", "tensorwise"), expected)
    assert not np.array_equal(losses(run_of(tmp_path / "f", None), "--fp8=rowwise"), expected)


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


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    expected = losses(run_of(tmp_path / "whole", "rowwise"))
    run = run_of(tmp_path / "halves", "rowwise")
    run.train("--max_steps=5")
    assert "fp8" not in run.train(STEPS).stdout.split("Resumed")[1]
    assert np.array_equal([step["loss"] for step in run.metrics()], expected)


def test_what_is_refused(tmp_path: Path) -> None:
    def sentence(fp8: dict, *flags: object, bf16: bool = True) -> str:
        return refuse(TinyRun(tmp_path, ranks=1, bf16=bf16, config={"fp8": fp8}), *flags)

    assert "fp8.recipe" in sentence({"recipe": "blockwise"})
    assert "fp8.recipies" in sentence({"recipies": "rowwise"})
    assert "fp8.format" in sentence({"format": "e5m2"})
    assert "fp8.filter_fqns" in sentence({"filter_fqns": "first"})
    assert 'names "layers.7"' in sentence({"filter_fqns": ["layers.7"]})
    assert "bf16" in sentence({"recipe": "rowwise"}, bf16=False)
    assert "--fp8 rowwise but fp8.recipe tensorwise" in sentence({"enabled": True}, "--fp8=rowwise")
    assert "--fp8 tensorwise but fp8.recipe none" in sentence({"enabled": False}, "--fp8")
    assert "--fp8 must be one of none, tensorwise, rowwise" in sentence({}, "--fp8=e4m3")
