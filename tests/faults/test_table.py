"""The table of bench/FAULTS.md: it counts every fault of a report once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("BUILD_DIR", HERE.parents[1] / "build"))
OUTCOMES = ("not tried", "right", "reported", "refused", "UNCLEAR", "WRONG", "LOST", "HANG", "CRASH")


def filled(tmp_path: Path, rows: list[dict]) -> subprocess.CompletedProcess[str]:
    document, report = tmp_path / "document.md", tmp_path / "report.json"
    document.write_text("before\n<!-- table -->\n| old |\n<!-- end of table -->\nbehind\n")
    report.write_text(json.dumps({"rows": rows}))
    arguments = [sys.executable, HERE / "table.py", report, document]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


def row(files: str, fault: str, **counts: int) -> dict:
    return {"files": files, "fault": fault, **dict.fromkeys(OUTCOMES, 0), **counts}


def test_targets_of_a_group_are_added_up_and_what_was_not_tried_is_left_out(tmp_path: Path) -> None:
    rows = [
        row("deepspeed-zero2", "flip", right=1, refused=5),
        row("deepspeed-zero3", "flip", refused=6, WRONG=2),
        row("read-deepspeed-zero2", "disk", refused=7),
        row("save-hdf5", "immutable", **{"not tried": 4}),
    ]
    done = filled(tmp_path, rows)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "document.md").read_text()
    assert text.startswith("before\n<!-- table -->\n| files | fault | tried | right |")
    assert "| DeepSpeed-format checkpoints | flip | 14 | 1 | 0 | 11 | 0 | 2 | 0 | 0 | 0 |\n" in text
    assert "| readers on a failing disk, during a run | disk | 7 | 0 | 0 | 7 | 0 | 0 | 0 | 0 | 0 |\n" in text
    assert "| saves | immutable | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |\n" in text
    assert text.endswith("| all | | 21 | 1 | 0 | 18 | 0 | 2 | 0 | 0 | 0 |\n<!-- end of table -->\nbehind\n")


def test_an_unknown_target_is_named(tmp_path: Path) -> None:
    done = filled(tmp_path, [row("hdf6", "flip", right=1)])
    assert done.returncode != 0
    assert "no place for hdf6" in done.stderr


def test_every_target_has_a_place(tmp_path: Path) -> None:
    program = BUILD / "tests" / "fault_campaign"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    tokens = HERE / "h5py_tokens.h5"  # any file is one for the list
    arguments = [program, "--list", "--count", "1", "--tokens", tokens]
    listed = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    names = {tuple(line.split("/")[:2]) for line in listed.splitlines()}
    done = filled(tmp_path, [row(files, fault, right=1) for files, fault in sorted(names)])
    assert done.returncode == 0, done.stderr
    assert f"| all | | {len(names)} |" in (tmp_path / "document.md").read_text()
