"""bench/loss_curves.py, with mpzero on the CPU."""

from __future__ import annotations

import json
import math
from pathlib import Path

import loss_curves
import pytest
from tiny_run import TinyRun
from trainer import BUILD

LAUNCH = "--launch=mpirun --oversubscribe -n 2"


def run(comparison: str, folder: Path, tiny: TinyRun, *own: str) -> int:
    flags = [str(word) for word in tiny.flags() if "--checkpoint" not in str(word) and "--metrics" not in str(word)]
    words = [comparison, str(folder), f"--build={BUILD}", "--steps=6", "--window=2", *own]
    return loss_curves.main([*words, "--", *flags])


def test_rows_are_one_training_with_other_bits(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, tiny = tmp_path / "out", TinyRun(tmp_path)
    assert run("compression", folder, tiny, LAUNCH, "--rows", "exact") == 0
    first = (folder / "exact" / "metrics.jsonl").read_text()
    assert run("compression", folder, tiny, LAUNCH, "--rows", "exact", "int8", "int4_gradients") == 0
    # A row that is there is not run again.
    assert (folder / "exact" / "metrics.jsonl").read_text() == first
    results = json.loads((folder / "results.json").read_text())
    assert list(results) == ["exact", "int8", "int4_gradients"]
    # fp32 is 32 bits, int8 8 and a scale, 4 bits 4 and a scale.
    exact = results["exact"]["internode_megabytes"]
    assert math.isclose(results["int8"]["internode_megabytes"] / exact, 8.125 / 32, rel_tol=0.1)
    assert math.isclose(results["int4_gradients"]["internode_megabytes"] / exact, (4.25 + 32) / 64, rel_tol=0.1)
    assert results["exact"]["difference_at_end"] == 0
    for name in ("int8", "int4_gradients"):
        assert 0 < abs(results[name]["largest_difference"]) < 0.5
    printed = capsys.readouterr().out
    assert printed.endswith((folder / "table.md").read_text())
    assert "int8 gradients and weights" in printed
    assert (folder / "curves.svg").stat().st_size > 1000


def test_rows_are_one_training_in_other_formats(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run("fp8", folder, TinyRun(tmp_path, bf16=True), "--rows", "bf16", "tensorwise", "rowwise") == 0
    results = json.loads((folder / "results.json").read_text())
    assert list(results) == ["bf16", "tensorwise", "rowwise"]
    for name in ("tensorwise", "rowwise"):
        assert json.loads((folder / name / "ds_config.json").read_text())["fp8"]["recipe"] == name
        assert 0 < abs(results[name]["largest_difference"]) < 0.5
        assert results[name]["gradient_norm"] > 0
    assert "fp8" not in json.loads((folder / "bf16" / "ds_config.json").read_text())


def test_rows_are_one_training_with_other_moments(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run("moments", folder, TinyRun(tmp_path, bf16=True)) == 0
    results = json.loads((folder / "results.json").read_text())
    assert list(results) == ["fp32", "bf16", "fp32_noise"]
    assert 0 < abs(results["bf16"]["largest_difference"]) < 0.5
    assert json.loads((folder / "bf16" / "ds_config.json").read_text())["bf16"]["bf16_optimizer_states"]


def test_a_row_that_fails_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run("compression", folder, TinyRun(tmp_path), LAUNCH, "--rows", "int8", "--ranks_per_node=3") == 1
    assert json.loads((folder / "results.json").read_text())["int8"]["error"]


@pytest.mark.parametrize(
    "words", [("compression", "--rows", "int3"), ("fp8",), ("moments",)], ids=["unknown row", "fp8", "moments"]
)
def test_a_comparison_that_cannot_be_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        run(words[0], tmp_path / "out", TinyRun(tmp_path), *words[1:])
    assert not (tmp_path / "out").exists()


def test_means_are_of_full_windows() -> None:
    assert loss_curves.means([1.0, 3.0, 5.0, 7.0, 100.0], 2) == [2.0, 6.0]
