"""bench/network_experiment.py, with mpzero on the CPU."""

from __future__ import annotations

import json
import math
from pathlib import Path

import network_experiment
import pytest
from tiny_run import TinyRun
from trainer import BUILD

LAUNCH = "mpirun --oversubscribe -n 4"


def run(folder: Path, run: TinyRun, *own: str, launch: str = LAUNCH) -> int:
    flags = [str(word) for word in run.flags() if "--checkpoint" not in str(word) and "--metrics" not in str(word)]
    flags = [word for word in flags if "--max_steps" not in word]
    return network_experiment.main(
        [str(folder), f"--build={BUILD}", f"--launch={launch}", "--steps=4", "--warm_up=1", *own, "--", *flags]
    )


def test_rows_differ_in_what_crosses_and_not_in_the_losses(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The ranks of LAUNCH are on one host: auto takes one level, and 4 ranks are no row of nodes."""
    folder, layouts = tmp_path / "out", ("one level", "2", "1", "3", "auto", "4")
    own = ["--networks", "auto", "--stages", "3", "--ranks_per_node", *layouts]
    assert run(folder, TinyRun(tmp_path), *own) == 0
    found = json.loads((folder / "results.json").read_text())["rows"]
    rows = {row["ranks_per_node"]: row for row in found}
    assert tuple(rows) == layouts and {row["stage"] for row in found} == {3}
    # One machine: one level sends nothing between hosts, and two nodes send half, four three quarters.
    assert rows["one level"]["internode_megabytes"] == 0
    assert rows["2"]["internode_megabytes"] > 0
    ratio = rows["1"]["internode_megabytes"] / rows["2"]["internode_megabytes"]
    assert math.isclose(ratio, 1.5, rel_tol=0.05)
    assert "does not divide the run's 4 ranks" in rows["3"]["error"]
    assert rows["3"]["step"] is None
    assert (rows["auto"]["nodes"], rows["auto"]["error"]) == (1, "") and rows["auto"]["step"] > 0
    assert (rows["4"]["step"], rows["4"]["error"]) == (None, "the run had one level with 4 ranks per node")
    losses = [
        [json.loads(line)["loss"] for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*/metrics.jsonl"))
    ]
    assert len(losses) == 5
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-4)
    printed = capsys.readouterr().out
    assert printed == (folder / "table.md").read_text()
    shown = printed.splitlines()[2:]
    assert shown[0].endswith("| 1.00 |")
    assert shown[4].startswith("| auto | 3 | auto: one level | ")
    assert shown[5].startswith("| auto | 3 | 4 | not run: the run had one level with 4 ranks per node | ")
    assert (folder / "steps.png").stat().st_size > 1000
    assert (folder / "steps.svg").stat().st_size > 1000


def test_two_ranks_of_this_machine_have_rows_of_two_levels(tmp_path: Path) -> None:
    assert run(tmp_path / "out", TinyRun(tmp_path), "--networks", "auto", launch="") == 0
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    layouts = [(row["stage"], row["ranks_per_node"], row["nodes"]) for row in rows]
    assert layouts == [(stage, size, nodes) for stage in (2, 3) for size, nodes in (("one level", 1), ("1", 2))]
    assert all((row["internode_megabytes"] > 0) == (row["nodes"] == 2) for row in rows)


def test_the_layout_of_a_row() -> None:
    row = network_experiment.Row("efa", 3, "auto", step=1.0, nodes=2)
    assert row.layout() == "auto: 2 nodes"


def test_status_1_if_no_row_ran(tmp_path: Path) -> None:
    assert run(tmp_path / "out", TinyRun(tmp_path), "--stages", "2", "--ranks_per_node", "3") == 1


def test_a_row_that_takes_too_long_is_ended_with_its_ranks(tmp_path: Path) -> None:
    """Its command has started another one, which stays no longer than it."""
    launch = f"bash -c 'sleep 600 & echo $! >{tmp_path}/pid; wait' --"
    own = ["--limit=2", "--stages", "2", "--ranks_per_node", "auto"]
    assert run(tmp_path / "out", TinyRun(tmp_path), *own, launch=launch) == 1
    pid = (tmp_path / "pid").read_text().strip()
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
    assert "timed out after 2 s" in (tmp_path / "out" / "table.md").read_text()


@pytest.mark.parametrize(
    ("own", "flags", "words"),
    [
        (["--warm_up=4"], [], "--warm_up must be less"),
        (["--ranks_per_node", "two"], [], "numbers, auto or 'one level'"),
        ([], ["--overwrite"], "--overwrite is not allowed after --"),
        ([], ["--max_steps", "3"], "--max_steps is not allowed after --"),
        (["--deepspeed"], [], "requires --model_type or --model_config"),
    ],
)
def test_mistakes(tmp_path: Path, own: list[str], flags: list[str], words: str, capsys: pytest.CaptureFixture) -> None:
    arguments = [str(tmp_path / "out"), "--steps=4", "--warm_up=1", *own, "--", "--deepspeed_config=f.json", *flags]
    with pytest.raises(SystemExit):
        network_experiment.main(arguments)
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_row_of_deepspeed_on_the_same_file(tmp_path: Path) -> None:
    """Two ranks on the CPU that mpirun starts; mpzero's row is the first, to which DeepSpeed's is compared."""
    pytest.importorskip("deepspeed")
    pytest.importorskip("transformers")
    folder = tmp_path / "out"
    streams = tmp_path / "streams.json"
    streams.write_text('{"sent": {"1": 4.0, "8": 12.5}, "round_trip_us": 47.4}')
    assert (
        run(
            folder,
            TinyRun(tmp_path),
            *["--networks", "auto", "--stages", "2", "--ranks_per_node", "one level", "--deepspeed"],
            *[f"--streams={streams}", "--limit=1200"],
            launch="mpirun --oversubscribe -n 2",
        )
        == 0
    )
    mpzero, deepspeed = json.loads((folder / "results.json").read_text())["rows"]
    assert mpzero["program"] == "mpzero" and mpzero["step"] > 0
    assert deepspeed["program"].startswith("DeepSpeed 0.") and deepspeed["step"] > 0, deepspeed["error"]
    table = (folder / "table.md").read_text()
    assert f"| {deepspeed['program']} |" in table
    assert table.endswith("GB/s by number of streams: 1: 4.00, 8: 12.50; round trip 47 µs.\n")
