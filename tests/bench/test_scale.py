"""bench/scale.py. Oracle: the least of Daly's expected time, by search; curves by hand."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
from scale import NODES, daly, lost, plan, where_it_stops, young


def expected_time(interval: float, cost: float, between: float) -> float:
    """Of a second of training, with exponential failures (Daly 2006, equation 20), without the restarts' constant."""
    return between * (math.exp((interval + cost) / between) - 1) / interval


@pytest.mark.parametrize(("cost", "between"), [(1.9, 44_000.0), (40.0, 3600.0), (300.0, 3600.0)])
def test_daly_s_interval_is_the_best_one(cost: float, between: float) -> None:
    candidates = [10 ** (exponent / 500) for exponent in range(0, 2500)]
    best = min(candidates, key=lambda interval: expected_time(interval, cost, between))
    assert daly(cost, between) == pytest.approx(best, rel=0.02)
    assert young(cost, between) > daly(cost, between)


def test_where_failures_are_as_frequent_as_saves_are_long_training_saves_once_in_between() -> None:
    assert daly(7200, 3600) == 3600


def test_the_lost_share() -> None:
    # 10 of 110 seconds are saves; half an interval, 5 s of a save and 20 s of a restart each 1,000 s.
    assert lost(cost=10, interval=100, save=5, restart=20, between_failures=1000) == pytest.approx(10 / 110 + 0.075)


def test_a_layout_pays_until_another_is_ten_percent_faster() -> None:
    flat, falling = [100.0] * len(NODES), [100.0, 99.0, 91.0, 89.0, *[95.0] * (len(NODES) - 4)]
    lines = where_it_stops({"two levels, EFA": flat, "one level, EFA": falling, "one level, TCP": [50.0] * len(NODES)})
    assert lines[2] == "| two levels, EFA | 4,096 GPUs or more | 100% |"
    assert lines[3] == "| one level, EFA | 32 GPUs | 91% |"
    assert lines[4] == "| one level, TCP | 4,096 GPUs or more | 100% |"


def planned(tmp_path: Path, output: dict | None, status: int = 0) -> dict | None:
    program = tmp_path / "mpzero"
    shown = json.dumps(output) if output else ""
    lines = ["import sys", f"print({shown!r})", "print('no such type', file=sys.stderr)", f"sys.exit({status})"]
    program.write_text("\n".join([f"#!{sys.executable}", *lines, ""]))
    program.chmod(0o755)
    return plan(program, "p5.48xlarge", 2, 3, True, "efa")


def test_a_plan_that_fails_is_none_that_does_not_fit(tmp_path: Path) -> None:
    machine = {"gpus_per_node": 8}
    step = {"machine": machine, "memory": {"fits": True}, "step": {"seconds": 1}}
    assert planned(tmp_path, step) == step
    assert planned(tmp_path, {"machine": machine, "memory": {"fits": False}, "step": None}, 2) is None
    with pytest.raises(SystemExit, match="no such type"):
        planned(tmp_path, None, 2)
    with pytest.raises(SystemExit, match="only memory"):
        planned(tmp_path, {"machine": machine, "memory": {"fits": True}, "step": None})
    with pytest.raises(SystemExit, match="type with 8 GPUs"):
        planned(tmp_path, step | {"machine": {"gpus_per_node": 4}})
