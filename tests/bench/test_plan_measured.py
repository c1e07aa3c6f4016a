"""bench/plan_measured.json: the measured runs as data agree with the pages that they are from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = json.loads((ROOT / "bench" / "plan_measured.json").read_text())["runs"]
# Middles of two figures, and what follows from tokens a second.
DERIVED = {
    "hosts_zero2_two_levels": ("163, 176 ms", 169.5),
    "speed_llama3_8b_zero3_4gpu_t512": ("685.1 and 685.4 ms", 685.3),
    "first_run_cpu": ("20,000 tokens a second", 102.4),
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
    assert run.keys() == RUNS[0].keys()
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
    assert run["recompute"] in ("none", "selective", "full")
    if run["memory_gib"] is not None:
        assert f"{run['memory_gib']:.1f}" in text
