"""bench/cpu_two_hosts.py: what it computes, and the small model where network namespaces are permitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cpu_two_hosts import Side, cpu_seconds, main, sides_of, summary
from trainer import BUILD, ENVIRONMENT
from two_namespaces import reason_to_skip

REASON = reason_to_skip()


def test_cpu_seconds_are_those_of_a_rank() -> None:
    assert cpu_seconds("Training\ncpu seconds 10.5 1.5\nMetrics\ncpu seconds 8.0 2.0\n") == 11


def test_a_side_has_the_median_of_all_its_steps_and_its_share_of_the_lone_rank() -> None:
    def steps(*seconds: float) -> list[dict]:
        return [{"step_seconds": each, "backward_seconds": each / 2} for each in seconds]

    alone = Side("alone", Path("b"), 1, steps(4.0, 5.0, 9.0), [20.0, 22.0, 30.0])
    together = Side("two hosts", Path("b"), 2, steps(6.25, 6.0, 7.0), [25.0])
    first, second = summary([alone, together])
    assert first == {
        "side": "alone",
        "cpu_seconds": 22.0,
        "measured_steps": 3,
        "step_ms": 5000.0,
        "backward_ms": 2500.0,
    }
    assert second["step_ms"] == 6250 and second["percent_of_alone"] == 80


def test_each_build_runs_on_two_hosts_and_the_last_one_alone() -> None:
    sides = sides_of([Path("before"), Path("build")])
    assert [(side.name, side.build.name, side.ranks) for side in sides] == [
        ("alone", "build", 1),
        ("two hosts, before", "before", 2),
        ("two hosts, build", "build", 2),
    ]


@pytest.mark.e2e
@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_both_sides_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    words = [str(tmp_path), "--build", str(BUILD), "--model=qwen3_tiny", "--seq_length=32"]
    assert main([*words, "--rounds=1", "--steps=2", "--warm_up=1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert json.loads((tmp_path / "cpu_two_hosts.json").read_text()) == lines
    alone, together, *_ = lines
    assert alone["run"] == "alone" and alone["measured_steps"] == together["measured_steps"] == 2
    # One level over two nodes: only where the ranks are on two hosts do bytes travel between nodes.
    assert together["internode_megabytes"] > 0 and together["cpu_seconds"] > 0
    assert lines[-1]["percent_of_alone"] > 0
    # The warning of a run whose collectives do not run beside compute.
    assert "do not run beside" not in next(tmp_path.glob("two_hosts*/mpzero.log")).read_text()
