"""bench/plan_measured.json: the measured runs as data agree with the pages that they are from."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import plan_against_measured
import pytest

ROOT = Path(__file__).resolve().parents[2]
VISITS = json.loads(plan_against_measured.MEASURED.read_text())["visits"]
ALL = plan_against_measured.runs_of(plan_against_measured.MEASURED)
RUNS = [run for run in ALL if run["title"] == VISITS[0]["title"]]
# Middles of two figures, and what follows from tokens a second.
DERIVED = {
    "hosts_zero2_two_levels": ("163, 176 ms", 169.5),
    "speed_llama3_8b_zero3_4gpu_t512": ("685.1 and 685.4 ms", 685.3),
}


def texts_of(run: dict) -> list[str]:
    """How the page may write the time of a step."""
    milliseconds = run["step_ms"]
    return [
        *(f"{milliseconds:,.{digits}f} ms" for digits in (0, 1, 2)),
        f"{milliseconds / 1000:.2f} s",
        f"{milliseconds:.1f} / ",
        f" / {milliseconds:.1f} ms",
    ]


def test_there_are_enough_runs_with_names_of_their_own() -> None:
    assert len(RUNS) >= 25
    assert len({run["name"] for run in RUNS}) == len(RUNS)


@pytest.mark.parametrize("run", RUNS, ids=[run["name"] for run in RUNS])
def test_a_run_is_one_of_the_page(run: dict) -> None:
    assert (ROOT / "configs" / "models" / f"{run['model']}.json").is_file()
    page, heading = run["source"].split(": ", 1)
    text = (ROOT / page).read_text()
    headings = re.findall(r"^##* (.*)$", text, re.MULTILINE)
    assert heading.split(",")[0] in headings
    if run["name"] in DERIVED:
        words, milliseconds = DERIVED[run["name"]]
        assert words in text and run["step_ms"] == milliseconds
    else:
        assert any(written in text for written in texts_of(run)), f"{page} has no step of {run['step_ms']} ms"
    assert run["zero_stage"] in (0, 1, 2, 3)
    assert run["recompute"] in ("none", "selective", "full", "auto")
    if run["memory_gib"] is not None:
        assert f"{run['memory_gib']:.1f}" in text


def planned_with(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Each run is planned with so many times its own time, and 3 GiB."""

    def planned(run: dict, program: Path, calibration: str | None) -> dict:
        memory = {"gpu_bytes": {"total": 3 * 2**30, "context": 0}}
        return {"step": {"seconds": run["step_ms"] / 1e3 * factor, "clipped_seconds": None}, "memory": memory}

    monkeypatch.setattr(plan_against_measured, "plan", planned)


def test_runs_that_were_planned_before_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    planned_with(monkeypatch, 1.05)
    old = next(run for run in RUNS if run["name"] == "users_qwen3_zero2_ratio_auto") | {"memory_gib": 3.0}
    new = {**old, "title": "New", "plan_ms": old["step_ms"] * 1.3, "plan_gib": 3.0}
    new["shipped_plan_ms"] = old["step_ms"] * 1.15
    lines, good = plan_against_measured.table([{**old, "title": "Old"}, new], Path("mpzero"), None)
    text = "\n".join(lines)
    assert good
    of_old, of_new = text.split("New:")
    assert "1 of 1 within 10%, 1 within 20%, largest difference +5.0%. Memory: 1 runs, 1 within 1%" in of_old
    assert "before the runs" not in of_old
    before = "Predictions before the runs: 0 of 1 within 10%, 0 within 20%, largest difference +30.0%"
    assert before in of_new
    assert "With the calibration shipped at the time: 0 of 1 within 10%, 1 within 20%" in of_new
    assert f"All tables. {before}" in of_new


def test_a_run_that_has_chosen_something_since_counts_by_what_was_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    planned_with(monkeypatch, 1)
    old = next(run for run in RUNS if run["name"] == "users_qwen3_zero2_ratio_auto")
    new = {**old, "title": "New", "plan_ms": old["step_ms"] * 1.3, "plan_gib": 1.0}
    chosen = {**new, "name": "chosen", "has_chosen": "it has chosen a constant"}
    left_out = {**new, "name": "left", "left_out": "its doctor had crashed"}
    lines, _ = plan_against_measured.table([chosen, left_out, new], Path("mpzero"), None)
    text = "\n".join(lines)
    assert "1 of 1 within 10%" in text
    assert "Predictions before the runs: 0 of 2 within 10%" in text
    assert "- chosen: it has chosen a constant (New)" in text
    assert "- left: its doctor had crashed (New)" in text


def test_clipped_steps_are_compared_with_their_own_plan() -> None:
    plan = {"step": {"seconds": 1.5, "clipped_seconds": 2.5}}
    assert plan_against_measured.step_seconds(plan) == 2.5
    plan["step"]["clipped_seconds"] = None
    assert plan_against_measured.step_seconds(plan) == 1.5


def test_runs_have_what_the_table_reads() -> None:
    for visit in VISITS:  # a later visit may measure a row once more
        names = [run["name"] for run in [*VISITS[0]["runs"], *(visit["runs"] if visit is not VISITS[0] else [])]]
        assert len(set(names)) == len(names)
    for run in ALL:
        assert run["step_ms"] > 0
        assert run["nodes"] == 1 or run["network_rate"]
        # A run on a CPU is planned by a calibration that is not here.
        assert not run["ranks"] or run["plan_ms"]


def test_a_run_on_a_cpu_without_its_calibration_keeps_what_was_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    planned_with(monkeypatch, 2)
    old = next(run for run in ALL if run["ranks"])
    lines, difference, _ = plan_against_measured.rows_of([old], Path("mpzero"), None)
    assert difference.of_steps == [old["plan_ms"] / old["step_ms"] - 1] and len(lines) == 1
    _, difference, _ = plan_against_measured.rows_of([{**old, "calibration": "one.json"}], Path("mpzero"), None)
    assert difference.of_steps == [1]


def test_a_run_on_a_slower_host_is_planned_with_that_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "runs.json"
    run = {**RUNS[0], "device": "NVIDIA H100 80GB HBM3"}
    file.write_text(json.dumps({"calibrated": {"launch_us": 99.5}, "runs": [run]}))
    shipped = json.loads((ROOT / "configs" / "calibrations" / "h100.json").read_text())
    used, commands = [], []

    def done(command: list[str], **_: object) -> subprocess.CompletedProcess:
        commands.append(command)
        given = [word.removeprefix("--calibration=") for word in command if word.startswith("--calibration=")]
        used.append([json.loads(Path(each).read_text()) for each in given])
        return subprocess.CompletedProcess(command, 0, "{}", "")

    monkeypatch.setattr(plan_against_measured.subprocess, "run", done)
    [found] = plan_against_measured.runs_of(file)
    plan_against_measured.plan(found, Path("mpzero"), None)
    plan_against_measured.plan({**found, "calibrated": None}, Path("mpzero"), None)
    plan_against_measured.plan(found, Path("mpzero"), str(ROOT / "configs" / "calibrations" / "h200.json"))
    assert used[:2] == [[{**shipped, "launch_us": 99.5}], []]
    assert used[2][0]["device"] == "NVIDIA H200"
    # The rate that the doctor measured before it.
    plan_against_measured.plan({**found, "nodes": 2, "network_rate": 7.5}, Path("mpzero"), None)
    assert "--network_rate=7.5" in commands[-1]


def test_the_page_has_what_was_measured_and_said_before() -> None:
    page = (ROOT / "bench" / "PLAN.md").read_text()
    for run in ALL:
        assert f"{run['title']}:" in page
        if run["left_out"] or run["has_chosen"]:
            assert f"- {run['name']}: " in page
            continue
        before = rf" \({run['plan_ms']:,.1f} before the run\)" if run["plan_ms"] else ""
        row = rf"^\| {run['name']} \| [\d.,]+ ms{before} \| {run['step_ms']:,.1f} ms \|"
        assert re.search(row, page, re.MULTILINE), run["name"]
