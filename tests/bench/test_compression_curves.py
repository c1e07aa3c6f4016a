"""bench/compression_curves.py, with mpzero on the CPU."""

from __future__ import annotations

import json
import math
from pathlib import Path

import compression_curves
import loss_curves
import pytest
from tiny_run import TinyRun
from trainer import BUILD

LAUNCH = "mpirun --oversubscribe -n 2"


def run(folder: Path, run: TinyRun, *own: str) -> int:
    flags = [str(word) for word in run.flags() if "--checkpoint" not in str(word) and "--metrics" not in str(word)]
    own = (f"--build={BUILD}", f"--launch={LAUNCH}", "--steps=6", "--window=2", *own)
    return compression_curves.main([str(folder), *own, "--", *flags])


def test_rows_are_one_training_with_other_bits(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, tiny = tmp_path / "out", TinyRun(tmp_path)
    assert run(folder, tiny, "--rows", "exact") == 0
    first = (folder / "exact" / "metrics.jsonl").read_text()
    assert run(folder, tiny, "--rows", "exact", "int8", "int4_gradients") == 0
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


def test_a_row_that_fails_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run(folder, TinyRun(tmp_path), "--rows", "int8", "--ranks_per_node=3") == 1
    assert "does not divide the run's 2 ranks" in json.loads((folder / "results.json").read_text())["int8"]["error"]


def test_an_unknown_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run(tmp_path / "out", TinyRun(tmp_path), "--rows", "int3")


def test_means_are_of_full_windows() -> None:
    assert loss_curves.means([1.0, 3.0, 5.0, 7.0, 100.0], 2) == [2.0, 6.0]
