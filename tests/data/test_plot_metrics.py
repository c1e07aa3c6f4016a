"""The plot shows the values of the metrics file."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from .conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "app"))
import plot_metrics

sys.path.pop(0)


def write_metrics(path, steps: int) -> None:
    rows = []
    for step in range(1, steps + 1):
        row = {"step": step, "loss": 4 / step, "lr": 1e-3, "grad_norm": 1.0, "tokens": 4096 * step}
        if step % 10 == 0:
            row["validation_loss"] = 5 / step
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows) + "\n")


def run(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, str(REPOSITORY / "app/plot_metrics.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("steps", [1, 2, 60])
def test_png_of_a_run_of_any_length(tmp_path, steps):
    write_metrics(tmp_path / "metrics.jsonl", steps)
    process = run(tmp_path / "metrics.jsonl", tmp_path / "plots/loss.png")
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == str(tmp_path / "plots/loss.png")
    assert process.stderr == ""
    picture = (tmp_path / "plots/loss.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(picture) > 10_000
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["loss.png"]


def test_columns_have_gaps_where_lines_do(tmp_path):
    write_metrics(tmp_path / "metrics.jsonl", 20)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "loss": null}\n{"step": 22, "lo')
    columns = plot_metrics.read_columns(tmp_path / "metrics.jsonl")
    assert columns["step"].tolist() == list(range(1, 22))
    assert np.isnan(columns["loss"][-1])
    assert np.isfinite(columns["validation_loss"]).nonzero()[0].tolist() == [9, 19]


def test_smoothing_is_a_centred_mean_that_ignores_gaps():
    values = np.array([1.0, 2.0, np.nan, 4.0, 9.0])
    assert plot_metrics.smooth(values, 3).tolist() == [1.5, 1.5, 3.0, 6.5, 6.5]
    assert plot_metrics.smooth(values[:2], 9).tolist() == [1.5, 1.5]


def test_plotted_lines_are_the_columns(tmp_path):
    import matplotlib.pyplot as plt

    write_metrics(tmp_path / "metrics.jsonl", 60)
    columns = plot_metrics.read_columns(tmp_path / "metrics.jsonl")
    figure, axis = plt.subplots()
    plot_metrics.draw_loss(axis, columns, 5)
    lines = {line.get_label(): line for line in axis.get_lines()}
    assert lines["training, each step"].get_ydata().tolist() == columns["loss"].tolist()
    assert lines["validation"].get_xdata().tolist() == [10, 20, 30, 40, 50, 60]
    assert lines["validation"].get_ydata()[0] == pytest.approx(0.5)
    plt.close(figure)


def test_each_validation_set_has_a_line(tmp_path):
    import matplotlib.pyplot as plt

    sets = {"validation_wiki_loss": 3.0, "validation_code_loss": 2.0}
    rows = [{"step": step, "loss": 4 / step} | (sets if step % 2 == 0 else {}) for step in range(1, 7)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    figure, axis = plt.subplots()
    plot_metrics.draw_loss(axis, plot_metrics.read_columns(tmp_path / "metrics.jsonl"), 1)
    lines = {line.get_label(): line for line in axis.get_lines()}
    assert lines["validation wiki"].get_ydata().tolist() == [3, 3, 3]
    assert lines["validation code"].get_xdata().tolist() == [2, 4, 6]
    assert lines["validation wiki"].get_color() != lines["validation code"].get_color()
    plt.close(figure)
    (tmp_path / "other").mkdir()
    write_metrics(tmp_path / "other/metrics.jsonl", 20)
    assert run(tmp_path, tmp_path / "other", tmp_path / "both.png").returncode == 0


def test_stacked_times_are_the_columns_and_need_all_parts(tmp_path):
    import matplotlib.pyplot as plt

    rows = []
    for step in range(1, 31):
        row = {"step": step, "loss": 1.0}
        row |= {name: 0.001 * step * (number + 1) for number, name in enumerate(plot_metrics.STEP_PARTS)}
        rows.append(row)
    rows.append({"step": 31, "loss": 1.0})  # a line of an older version
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    columns = plot_metrics.read_columns(tmp_path / "metrics.jsonl")
    figure, axis = plt.subplots()
    plot_metrics.draw_split(axis, columns)
    labels = [layer.get_label() for layer in axis.collections]
    assert labels == ["forward", "backward", "optimizer", "communication exposed", "data"]
    assert axis.get_ylabel() == "step (ms)"
    # The uppermost layer ends at the sum of all parts: 30 x (1 + 2 + 3 + 4 + 5) ms.
    assert axis.collections[-1].get_paths()[0].vertices[:, 1].max() == pytest.approx(450)
    plt.close(figure)
    assert run(tmp_path / "metrics.jsonl", tmp_path / "loss.png").returncode == 0
    heights = {}
    for name, drop in (("with", ()), ("without", ("data_seconds",))):
        kept = [{key: value for key, value in row.items() if key not in drop} for row in rows]
        (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, kept)) + "\n")
        assert run(tmp_path / "metrics.jsonl", tmp_path / f"{name}.png").returncode == 0
        heights[name] = plt.imread(tmp_path / f"{name}.png").shape[0]
    assert heights["with"] > heights["without"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("", "holds no step"),
        ("{}\n{}\n", "holds no step"),
    ],
)
def test_bad_metrics_get_one_sentence(tmp_path, content, message):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    process = run(tmp_path / "metrics.jsonl", tmp_path / "loss.png")
    assert process.returncode == 2
    assert message in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "loss.png").exists()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless"])
def test_what_is_no_regular_file_is_refused(tmp_path, make):
    make(tmp_path / "metrics.jsonl")
    process = run(tmp_path / "metrics.jsonl", tmp_path / "loss.png")
    assert process.returncode == 2 and str(tmp_path / "metrics.jsonl") in process.stderr
    assert process.stderr.count("\n") == 1


def test_damaged_lines_are_left_out_and_counted(tmp_path, capsys):
    lines = ['{"step": 1, "loss": 2}', "\0\0", '{"event": "gap", "lines": 2}', '{"st', '{"step": 2, "loss": 1}', ""]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert plot_metrics.read_columns(tmp_path / "metrics.jsonl")["step"].tolist() == [1, 2]
    assert "metrics.jsonl has 2 damaged lines (2, 4)" in capsys.readouterr().err


def test_runs_are_compared_with_a_curve_each(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        write_metrics(tmp_path / name / "metrics.jsonl", 30)
    process = run(tmp_path / "a", tmp_path / "b/metrics.jsonl", tmp_path / "c", tmp_path / "compared.svg")
    assert process.returncode == 0, process.stderr
    picture = (tmp_path / "compared.svg").read_text()
    for name in ("a", "b", "c"):
        assert f"<!-- {name} -->" in picture
    assert "<!-- Training loss of a, b, c -->" in picture


def test_runs_are_named_by_the_folders_that_tell_them_apart(tmp_path):
    files = [tmp_path / "one/run/metrics.jsonl", tmp_path / "two/run/metrics.jsonl"]
    assert plot_metrics.labels_of(files) == ["one/run", "two/run"]
    here = [tmp_path / "run/metrics.jsonl", tmp_path / "run/metrics.old-1.jsonl"]
    assert plot_metrics.labels_of(here) == [str(file) for file in here]


def test_a_forgotten_picture_is_not_written_over_a_run(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_metrics(tmp_path / name / "metrics.jsonl", 3)
    for last in (tmp_path / "b", tmp_path / "b/metrics.jsonl"):
        process = run(tmp_path / "a", last)
        assert process.returncode == 2
        assert "name the picture last" in process.stderr
