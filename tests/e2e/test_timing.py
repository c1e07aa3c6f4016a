"""The time breakdown of a step: the log line, the metrics fields, and the trace of --profile_steps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny_run import TinyRun
from trainer import metrics

pytestmark = pytest.mark.e2e

PARTS = ("forward_seconds", "backward_seconds", "exposed_communication_seconds", "optimizer_seconds", "data_seconds")


def ranges_of(trace: Path) -> list[dict]:
    """The named ranges of a trace in Chrome's format: complete events with a time and a duration in us."""
    events = json.loads(trace.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") == "user_annotation"]


def is_within(inner: dict, outer: dict) -> bool:
    slack = 0.01  # us, for the rounding of printed times
    return outer["ts"] - slack <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + slack


def test_split_adds_up_to_the_step(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, stage=3)
    result = run.train("--max_steps=4", "--logging_freq=2", "--wall_clock_breakdown")
    lines = result.stdout.splitlines()
    times = [number for number, line in enumerate(lines) if line.startswith("  time: ")]
    assert [lines[number - 2].split()[:2] for number in times] == [["Batch", "2"], ["Batch", "4"]]
    part = r"\d+\.\d+ (ms|s) \(\d+(\.\d)?%\)"
    exposed = r"\d+\.\d+ (ms|s) \(\d+(\.\d)?%(; rank 1: \d+(\.\d)?%)?\)"
    pattern = f"  time: forward {part}, backward {part}, exposed communication {exposed}, optimizer {part}, data {part}"
    for number in times:
        assert re.fullmatch(pattern, lines[number]), lines[number]
    for step in run.metrics():
        assert all(step[name] > 0 for name in PARTS), step
        # The rest is creating the report; the parts are within the step's time.
        assert sum(step[name] for name in PARTS) <= step["step_seconds"]
        exposed = step["exposed_parameters_seconds"] + step["exposed_gradients_seconds"]
        assert exposed == pytest.approx(step["exposed_communication_seconds"])


def test_lines_of_a_logged_step_have_at_most_80_columns(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    lines = run.train("--max_steps=6", "--logging_freq=2").stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("Batch 4 "))
    assert [line.split()[:2] for line in lines[first : first + 3 : 2]] == [["Batch", "4"], ["Batch", "6"]]
    number = r"\d[\d.e+-]*"
    batch, rest = lines[first : first + 2]
    assert re.fullmatch(rf"Batch 4 Loss: {number}, Speed: {number} samples/sec, lr: {number}", batch)
    assert re.fullmatch(rf"  Grad norm: {number}, Tokens/sec: \d+, Memory: \d+\.\d\d GiB", rest)
    room = len("99999, MFU: 50.2%")  # for large numbers of steps or tokens, and for GPUs
    assert len(batch) + room <= 80 and len(rest) + room <= 80


def test_one_rank_communicates_nothing(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, ranks=1)
    run.train("--max_steps=2")
    assert [step["exposed_communication_seconds"] for step in run.metrics()] == [0, 0]


@pytest.mark.parametrize("stage", [2, 3])
def test_trace_names_units_within_its_steps(tmp_path: Path, stage: int) -> None:
    run = TinyRun(tmp_path, stage=stage)
    result = run.train("--max_steps=5", "--profile_steps=2-3")
    trace = tmp_path / "trace-rank0-steps-2-3.json"
    assert str(trace) in result.stdout
    assert "perfetto" in result.stdout
    assert "ERROR" not in result.stderr
    assert sorted(path.name for path in tmp_path.glob("trace*")) == [trace.name]

    ranges = ranges_of(trace)
    steps = {event["name"]: event for event in ranges if re.fullmatch(r"step \d+", event["name"])}
    assert sorted(steps) == ["step 2", "step 3"]
    units = ["embedding", "layers.0", "layers.1", "head"]
    expected = {f"optimizer {unit}" for unit in units} | {f"reduce {unit}" for unit in units}
    expected |= {f"forward {unit}" for unit in units[:3]} | {f"backward {unit}" for unit in units[:3]}
    expected |= {"forward and backward head", "all_gather", "reduce_scatter"} | {f"gather {unit}" for unit in units}
    for step in steps.values():
        inside = {event["name"] for event in ranges if is_within(event, step)}
        assert expected <= inside, expected - inside
    for event in ranges:
        assert any(is_within(event, step) for step in steps.values()), event
    # Two micro-batches per step, two steps.
    assert sum(event["name"] == "backward layers.1" for event in ranges) == 4


def test_all_ranks_profile_into_a_folder_of_choice(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=2", "--profile_steps=2", "--profile_ranks=all", f"--profile_dir={tmp_path / 'a/traces'}")
    names = sorted(path.name for path in (tmp_path / "a/traces").iterdir())
    assert names == ["trace-rank0-steps-2-2.json", "trace-rank1-steps-2-2.json"]


def test_a_resumed_run_profiles_what_is_left(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=2", "--checkpoint_freq=0")
    run.train("--max_steps=4", "--checkpoint_freq=0", "--profile_steps=1-3")
    ranges = ranges_of(tmp_path / "trace-rank0-steps-3-3.json")
    assert {event["name"] for event in ranges if event["name"].startswith("step ")} == {"step 3"}
    result = run.train("--max_steps=6", "--checkpoint_freq=0", "--profile_steps=1-3")
    assert "--profile_steps 1-3" in result.stderr


def test_a_trace_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    (tmp_path / "file").write_text("")
    result = run.train("--max_steps=3", "--profile_steps=1-2", f"--profile_dir={tmp_path / 'file'}")
    assert f"{tmp_path / 'file'}/trace-rank0-steps-1-2.json" in result.stderr
    assert len(metrics(tmp_path / "metrics.jsonl")) == 3


def test_profiling_changes_no_result(tmp_path: Path) -> None:
    plain, profiled = TinyRun(tmp_path / "plain"), TinyRun(tmp_path / "profiled")
    plain.train("--max_steps=3")
    profiled.train("--max_steps=3", "--profile_steps=2-3")
    assert [step["loss"] for step in plain.metrics()] == [step["loss"] for step in profiled.metrics()]
