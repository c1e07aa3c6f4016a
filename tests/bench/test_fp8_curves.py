"""bench/fp8_curves.py, with mpzero on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import fp8_curves
import pytest
from tiny_run import TinyRun
from trainer import BUILD


def run(folder: Path, tiny: TinyRun, *own: str) -> int:
    flags = [str(word) for word in tiny.flags() if "--checkpoint" not in str(word) and "--metrics" not in str(word)]
    return fp8_curves.main([str(folder), f"--build={BUILD}", "--steps=6", "--window=2", *own, "--", *flags])


def test_rows_are_one_training_in_other_formats(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "out"
    assert run(folder, TinyRun(tmp_path, bf16=True), "--rows", "bf16", "tensorwise", "rowwise") == 0
    results = json.loads((folder / "results.json").read_text())
    assert list(results) == ["bf16", "tensorwise", "rowwise"]
    for name in ("tensorwise", "rowwise"):
        assert json.loads((folder / name / "ds_config.json").read_text())["fp8"]["recipe"] == name
        assert 0 < abs(results[name]["largest_difference"]) < 0.5
        assert results[name]["gradient_norm"] > 0
    assert "fp8" not in json.loads((folder / "bf16" / "ds_config.json").read_text())
    assert capsys.readouterr().out.endswith((folder / "table.md").read_text())
    assert (folder / "curves.svg").stat().st_size > 1000


def test_a_file_without_bf16_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run(tmp_path / "out", TinyRun(tmp_path))
