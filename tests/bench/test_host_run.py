"""The table of AdamW in host memory."""

from __future__ import annotations

from pathlib import Path

import host_run
from deepspeed_peer import WORKS
from visit import Settings, Visit


def make_visit(folder: Path, **settings) -> Visit:
    nowhere = folder / "none.h5"
    return Visit(
        Settings(
            output=folder / "out",
            build=folder,
            train_data=nowhere,
            validation_data=nowhere,
            scratch=folder / "scratch",
            **settings,
        )
    )


def test_every_row_has_a_peer_that_does_the_same_work() -> None:
    for row in host_run.rows():
        work = WORKS[row.peer]
        assert (work.model, work.seq_length) == (row.model, row.seq_length)
        assert row.config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    names = [row.name for row in host_run.rows()]
    assert len(set(names)) == len(names)


def test_a_share_on_the_gpu_changes_nothing_else() -> None:
    config = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    changed = host_run.with_ratio(config, "auto")
    assert changed["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "ratio": "auto"}
    assert "ratio" not in config["zero_optimization"]["offload_optimizer"]


def test_the_table_compares_runs_with_the_peer_of_the_same_gpus(tmp_path: Path) -> None:
    visit = make_visit(tmp_path)
    visit.results["host_qwen3_1gpu"] = {"step_ms": 130.0}
    visit.results["host_qwen3_1gpu_clipped"] = {"step_ms": 150.0, "clipped_percent": 40}
    visit.results["host_qwen3_4gpu"] = {"step_ms": 100.0}
    visit.results["peer_deepspeed_users_qwen3_zero2_1gpu"] = {"figures": [{"step_ms": 520.0}]}
    lines = host_run.table(visit)
    assert len(lines) == 5
    assert lines[2].endswith("| 1 | 130.0 ms | 0% | 520 ms | 4.00 | 3.5 |")
    assert lines[3].endswith("| 1 | 150.0 ms | 40% | 520 ms | 3.47 | 3.5 |")
    assert lines[4].endswith("| 4 | 100.0 ms | 0% | |  | 3.5 |")
