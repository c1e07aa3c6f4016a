"""The picture shows the values of the metrics file."""

import json
import sys

import numpy as np
import pytest

from .conftest import REPOSITORY, run_here

sys.path.insert(0, str(REPOSITORY / "app"))
from run_files.metric_names import STEP_PARTS
from run_report import picture
from run_report.reading import read_run

sys.path.pop(0)


def write_rows(folder, steps: int, **of_step) -> None:
    """`of_step`: a value of each step by its number."""
    folder.mkdir(exist_ok=True)
    rows = [{"step": step, "loss": 4 / step, "lr": 1e-3, "tokens": 9 * step} for step in range(1, steps + 1)]
    for row in rows:
        row |= {key: value for key, at in of_step.items() if (value := at(row["step"])) is not None}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(*arguments):
    return run_here(REPOSITORY, ["app/report.py", *map(str, arguments)])


@pytest.fixture
def axis():
    figure, axis = picture.plt.subplots()
    yield axis
    picture.plt.close(figure)


def lines_of(axis) -> dict:
    return {line.get_label(): line for line in axis.get_lines()}


@pytest.mark.parametrize("steps", [1, 2, 60])
def test_a_run_of_any_length_has_a_picture(tmp_path, steps):
    write_rows(tmp_path / "run", steps, grad_norm=lambda _: 1.0, validation_loss=lambda at: 5 if at % 10 == 0 else None)
    file = tmp_path / "plots/loss.png"
    drawn = run(tmp_path / "run", "--png", file)
    assert (drawn.returncode, drawn.stdout, drawn.stderr) == (0, f"{file}\n", "")
    assert file.read_bytes().startswith(b"\x89PNG") and not (tmp_path / "run/report.html").exists()
    assert list((tmp_path / "plots").iterdir()) == [file]


def test_lines_are_the_columns_and_each_validation_set_has_one(tmp_path, axis):
    sets = {"validation_wiki_loss": 3.0, "validation_code_loss": 2.0}
    every_second = {key: lambda at, value=value: value if at % 2 == 0 else None for key, value in sets.items()}
    write_rows(tmp_path, 6, **every_second)
    run_ = read_run(tmp_path)
    picture.draw_loss(axis, [run_], 5)
    lines = lines_of(axis)
    assert lines["training, each step"].get_ydata().tolist() == run_.columns["loss"].tolist()
    assert lines["validation wiki"].get_ydata().tolist() == [3, 3, 3]
    assert lines["validation code"].get_xdata().tolist() == [2, 4, 6]
    assert lines["validation wiki"].get_color() != lines["validation code"].get_color()


def test_stacked_times_are_the_columns_and_need_all_parts(tmp_path, axis):
    parts = {name: lambda at, part=part: 0.001 * at * part for part, name in enumerate(STEP_PARTS, start=1)}
    write_rows(tmp_path, 30, **parts)
    picture.draw_split(axis, read_run(tmp_path).columns)
    assert [layer.get_label() for layer in axis.collections] == list(STEP_PARTS.values())
    # The uppermost layer ends at the sum of all parts: 30 x (1 + 2 + 3 + 4 + 5) ms.
    assert axis.collections[-1].get_paths()[0].vertices[:, 1].max() == pytest.approx(450)
    heights = []
    for kept in (parts, dict(list(parts.items())[:-1])):
        write_rows(tmp_path, 30, **kept)
        assert run(tmp_path, "--png", tmp_path / "loss.png").returncode == 0
        heights.append(picture.plt.imread(tmp_path / "loss.png").shape[0])
    assert heights[0] > heights[1]


def test_tokens_that_grow_unevenly_have_an_axis(tmp_path, axis):
    steps = np.arange(1.0, 5)
    axis.plot(steps, steps)
    picture.add_token_axis(axis, steps, np.array([10.0, np.nan, 30, 100]))
    to_tokens, to_steps = axis.child_axes[0]._functions
    assert to_tokens(np.array([1, 2, 3, 4])).tolist() == [10, 20, 30, 100] and to_steps(65) == 3.5
    picture.add_token_axis(axis, steps, np.array([10.0, 10, 10, 10]))
    assert len(axis.child_axes) == 1


def test_runs_are_compared_with_a_curve_each(tmp_path):
    for name in ("a", "b", "c"):
        write_rows(tmp_path / name, 30, validation_loss=lambda at: 5 / at)
    process = run(
        tmp_path / "a", tmp_path / "b", tmp_path / "c", "--png", tmp_path / "all.svg", "--output", tmp_path / "x"
    )
    assert process.stdout == f"{tmp_path}/all.svg\n{tmp_path}/x\n"
    drawn = (tmp_path / "all.svg").read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("a", "b", "c", "Training loss of a, b, c"))


def test_a_forgotten_picture_is_not_written_over_a_run(tmp_path):
    for name in ("a", "b"):
        write_rows(tmp_path / name, 3)
    before = (tmp_path / "b/metrics.jsonl").read_bytes()
    for last in ("b", "b/metrics.jsonl"):
        process = run(tmp_path / "a", "--png", tmp_path / last)
        assert process.returncode == 2 and str(tmp_path / last) in process.stderr
    assert (tmp_path / "b/metrics.jsonl").read_bytes() == before
    odd = run(tmp_path / "a", "--png", tmp_path / "loss.odd")
    assert odd.returncode == 2 and "loss.odd" in odd.stderr and odd.stderr.count("\n") == 1
    assert not (tmp_path / "loss.odd").exists()
