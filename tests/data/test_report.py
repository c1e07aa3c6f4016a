"""The page about a run shows what the run has written, whatever is in it."""

import json
import math
import os
import re
import subprocess
import sys
import tracemalloc
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from .conftest import REPOSITORY, run_here

sys.path.insert(0, str(REPOSITORY / "app"))
from run_files.metric_names import STEP_PARTS
from run_report.charts import charts_of
from run_report.page import page_of, results_table
from run_report.reading import ReportError, read_run, read_runs
from run_report.thinning import smooth, thinned

sys.path.pop(0)

RUN = "00000000aaaaaaaa"
HOSTILE = "</script><script>alert(1)</script><img src=http://example.org onerror=alert(2)>"


class Page(HTMLParser):
    """The text of a page, its elements, and the data of its curves."""

    def __init__(self, html: str):
        super().__init__()
        self.elements, self.texts, self.open = [], [], []
        self.feed(html)
        self.charts = json.loads(re.search(r'id="charts">(.*?)</script>', html, re.DOTALL).group(1))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.texts.append(data)

    def text(self) -> str:
        return "\n".join(self.texts)

    def row(self, first: str) -> list[str]:
        """The cells that follow a cell of a table."""
        at = self.texts.index(first)
        return self.texts[at + 1 : at + 3]


def steps(folder, count: int, run: str = RUN, **fields) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        for step in range(1, count + 1):
            row = {"step": step, "loss": 4 / step, "lr": 1e-3, "tokens": 4096 * step, "time": 1.7e9 + step, "run": run}
            file.write(json.dumps(row | fields) + "\n")


def event(folder, kind: str, start: str = "a", run: str = RUN, **fields) -> None:
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"event": kind, "time": 1.7e9, "run": run, "start": start} | fields) + "\n")


def begin(folder, start: str = "a", **fields) -> None:
    facts = {"began": 1.7e9, "model_type": "qwen3_tiny", "parameters": 821120, "devices": "CPU", "hosts": ["n0", "n1"]}
    facts |= {"world_size": 2, "steps_done": 0, "max_steps": 60, "settings": [["learning rate", "0.001", "flag: --lr"]]}
    event(folder, "start", start, **(facts | fields))


def page(*folders) -> Page:
    return Page(page_of([read_run(folder) for folder in folders]))


def test_the_page_of_a_run_says_what_it_was_and_how_it_went(tmp_path):
    folder = tmp_path / "first"
    steps(folder, 40)
    begin(folder)
    event(folder, "warning", text="rank 1 is slow")
    event(folder, "checkpoint", step=20, seconds=1.5, bytes=2e9, paused_seconds=0.25, steps=20)
    begin(folder, "b", steps_done=20, memory=["Memory of a GPU", "  states 1 GiB"])
    event(folder, "end", "b", status="stopped", reason="", steps=20)
    shown = page(folder)
    assert shown.row("model")[0] == "qwen3_tiny, 821,120 parameters"
    assert shown.row("step")[0] == "40 of 60"
    assert shown.row("learning rate") == ["0.001", "flag: --lr"]
    assert "no end recorded" in shown.texts and "stopped" in shown.texts
    assert "rank 1 is slow" in shown.text() and "states 1 GiB" in shown.text()
    loss = shown.charts[0]["traces"][0]
    assert loss["choices"]["step"] == list(range(1, 41))
    assert loss["choices"]["tokens"][-1] == 4096 * 40
    assert loss["y"][:2] == [4, 2]
    saves = next(chart for chart in shown.charts if "2.00 GB" in json.dumps(chart))
    assert saves["traces"][0]["text"] == ["2.00 GB, training paused for 0.250 s"]
    # It loads nothing.
    for tag, attributes in shown.elements:
        assert tag not in ("link", "iframe", "img") and not {"src", "href"} & set(attributes), tag


def test_the_speed_of_a_run_is_its_mean(tmp_path):
    steps(tmp_path, 1, tokens_per_second=100.0)
    steps(tmp_path, 1, tokens_per_second=300.0)
    assert page(tmp_path).row("mean tokens/s")[0] == "150"
    (tmp_path / "summary.json").write_text(json.dumps({"run": RUN, "tokens_per_second": 160.2}))
    assert page(tmp_path).row("mean tokens/s")[0] == "160"


def test_each_validation_set_has_a_curve_and_a_row(tmp_path):
    steps(tmp_path / "a", 3, validation_wiki_loss=3.5, validation_code_loss=2.5)
    steps(tmp_path / "b", 3, validation_loss=4.5)
    shown = page(tmp_path / "a")
    assert shown.row("validation wiki loss")[0] == "3.5" and shown.row("validation code loss")[0] == "2.5"
    curves = {trace["name"]: trace for trace in chart_of([tmp_path / "a"], "Loss").traces}
    assert curves["validation wiki"]["y"] == [3.5] * 3 and curves["validation code"]["y"] == [2.5] * 3
    both = [trace["name"] for trace in chart_of([tmp_path / "a", tmp_path / "b"], "Loss").traces]
    assert {"a: validation wiki", "a: validation code", "b: validation"} < set(both)


def reading(folder, time: float, start: str = "a", run: str = RUN, **fields) -> None:
    with (folder / "node.jsonl").open("a") as file:
        line = {"event": "node", "time": 1.7e9 + time, "run": run, "start": start, "host": "n0"}
        file.write(json.dumps(line | fields) + "\n")


def chart_of(folders, title: str):
    return next((chart for chart in charts_of([read_run(folder) for folder in folders]) if chart.title == title), None)


def test_gpus_and_network_are_shown_over_time(tmp_path):
    steps(tmp_path / "a", 40)
    for at, gpu in ((0, 0.25), (10, 0.5), (30, 0.75)):
        gpus = {"0": {"utilization_ratio": gpu, "sm_clock_hertz": 1.5e9}, "1": {"utilization_ratio": gpu + 0.125}}
        reading(tmp_path / "a", at, sent_bytes=1e9 * at, received_bytes=2e9 * at, gpus=gpus)
    # After a restart the counters may begin anew, and another run's readings do not count.
    reading(tmp_path / "a", 40, "b", sent_bytes=5, received_bytes=5)
    reading(tmp_path / "a", 41, "c", run="00000000bbbbbbbb", sent_bytes=9e9, received_bytes=5)
    load = chart_of([tmp_path / "a"], "GPU utilization")
    assert [trace["name"] for trace in load.traces] == ["GPU 0", "GPU 1"] and "n0" in load.about
    assert load.traces[0]["y"] == [0.25, 0.5, 0.75]
    # The steps ended one a second, the first one after a second.
    assert load.traces[0]["choices"]["step"] == [1, 10, 30]
    assert load.traces[0]["choices"]["tokens"] == [4096, 40960, 122880]
    assert chart_of([tmp_path / "a"], "GPU clock").traces[0]["y"] == [1500, 1500, 1500]
    network = chart_of([tmp_path / "a"], "Network")
    assert [trace["y"] for trace in network.traces] == [[1, 1], [2, 2]]
    steps(tmp_path / "b", 40)
    reading(tmp_path / "b", 10, gpus={"0": {"utilization_ratio": 0.5}, "1": {"utilization_ratio": 1}})
    both = chart_of([tmp_path / "a", tmp_path / "b"], "GPU utilization")
    assert [(trace["name"], trace["y"][0]) for trace in both.traces] == [("a", 0.3125), ("b", 0.75)]


def test_readings_that_are_none_leave_a_page_without_them(tmp_path):
    steps(tmp_path, 3)
    assert chart_of([tmp_path], "Network") is None
    (tmp_path / "node.jsonl").write_text('[]\n{"run": 5}\n{"time": "x"}\n\xff{')
    for odd in (None, [], "x", {"0": 5}, {"0": {"power_watts": "much"}}, {"0": {"power_watts": float("nan")}}):
        reading(tmp_path, 1, gpus=odd, sent_bytes="all", received_bytes=None)
    shown = page(tmp_path)
    assert shown.charts and "GPU power" not in shown.text() and "Network" not in shown.text()


def test_what_runs_write_is_text_not_markup(tmp_path):
    folder = tmp_path / f"a{HOSTILE}".replace("/", "")
    steps(folder, 3)
    begin(folder, settings=[[HOSTILE, HOSTILE, HOSTILE], [1, 2, 3], "x"], model_type=HOSTILE, hosts=[HOSTILE])
    event(folder, "warning", text=HOSTILE)
    event(folder, "end", status=HOSTILE, reason=HOSTILE)
    (folder / "failure.json").write_text(json.dumps({"reason": HOSTILE}))
    shown = page(folder)
    assert not [tag for tag, _ in shown.elements if tag == "img"]
    assert [tag for tag, _ in shown.elements].count("script") == 3
    assert shown.text().count("alert(2)") >= 6


def test_a_metric_cannot_end_the_data_of_the_curves(tmp_path):
    """Its name is in them: of a run in a folder of that name."""
    for name in ("a", "b"):
        steps(tmp_path / f"{name}{HOSTILE}".replace("/", "") / "<!--<script>", 3)
    folders = sorted(tmp_path.glob("*/*"))
    html = page_of([read_run(folder) for folder in folders])
    assert "&lt;!--&lt;script&gt;: training" in json.dumps(Page(html).charts)
    data = html[html.index('id="charts">') + len('id="charts">') :]
    assert "<" not in data[: data.index("</script>")]


def texts_of(value: object, key: str = "") -> list[str]:
    """Those of a chart but the templates, which are ours."""
    if isinstance(value, str):
        return [] if key == "hovertemplate" else [value]
    inner = (
        value.items() if isinstance(value, dict) else [("", each) for each in value] if isinstance(value, list) else []
    )
    return [text for key, each in inner for text in texts_of(each, key)]


def test_no_name_is_markup_to_plotly(tmp_path):
    odd = """<b>'"&amp;<a href=javascript:alert(1)>"""
    parts = dict.fromkeys(STEP_PARTS, 0.1)
    for name in ("a", "b"):
        folder = tmp_path / name / odd
        steps(
            folder,
            3,
            slowest_rank=1,
            slowest_rank_share=0.5,
            rank_seconds=[1.0, 2.0],
            **parts,
            **{f"validation_{odd}_loss": 1},
        )
        begin(folder)
        event(folder, "checkpoint", step=2, seconds=1.5)
        reading(folder, 1, host=odd, gpus={odd: {"power_watts": 1}}, sent_bytes=1)
        reading(folder, 2, host=odd, gpus={odd: {"power_watts": 1}}, sent_bytes=2)
    for folders in ([tmp_path / "a" / odd], [tmp_path / "a" / odd, tmp_path / "b" / odd]):
        charts = page(*folders).charts
        texts = texts_of(charts)
        assert not [text for text in texts if "<" in text or ">" in text]
        shown = {unescape(text) for text in texts}
        assert f"validation {odd}" in {text.removeprefix(f"{odd}: ") for text in shown}
        assert f"GPU {odd}" in shown if len(folders) == 1 else odd in shown


def test_several_runs_share_each_chart_and_settings_that_differ_are_marked(tmp_path):
    for name, rate in (("a", "0.001"), ("b", "0.002")):
        steps(tmp_path / name, 5, lr=float(rate))
        begin(tmp_path / name, settings=[["beta1", "0.9", ""], ["learning rate", rate, ""]])
    shown = page(tmp_path / "a", tmp_path / "b")
    assert [trace["name"] for trace in shown.charts[0]["traces"]] == ["a: training", "b: training"]
    assert shown.texts.index("learning rate") < shown.texts.index("beta1")
    assert [attributes["class"] for tag, attributes in shown.elements if tag == "tr" and "class" in attributes] == [
        "", "", "differs", "", "", "",
    ]  # fmt: skip


def test_several_runs_are_ranked_by_their_losses_with_the_settings_that_differ(tmp_path):
    for name, rate, loss in (("a", "0.001", 3.5), ("b", "0.002", 2.5), ("c", "0.003", 3.0)):
        steps(tmp_path / name, 5, validation_loss=loss)
        begin(tmp_path / name, settings=[["learning rate", rate, ""], ["beta1", "0.9", ""]])
    assert read_runs([tmp_path])[0].folder.name == "b"
    html = results_table(read_runs([tmp_path / name for name in "abc"]))
    rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall("<tr.*?</tr>", html)]
    assert rows[0][:3] == ["run", "learning rate", "step"]
    assert [(row[0], row[1], row[3]) for row in rows[1:]] == [
        ("b", "0.002", "2.5"), ("c", "0.003", "3"), ("a", "0.001", "3.5"),
    ]  # fmt: skip
    assert results_table([read_run(tmp_path / "a")]) == ""
    # Compared by the training loss, since "d" has no validation; "e" has diverged.
    for name, losses in (("d", [3.0, 0.9]), ("e", [0.1, math.nan])):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"step": step, "loss": loss, "run": RUN}) for step, loss in enumerate(losses, 1)]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    html = results_table(read_runs([tmp_path / name for name in "eda"]))
    assert re.findall(r"<tr[^>]*><td>(.)</td>", html) == ["a", "d", "e"]


ODD = [None, "x", "", True, -1, 1e308, 10**400, float("inf"), float("nan"), [], {}, [None], {"a": 1}, [[]], "\ud800"]


def rank_steps(folder, rows: dict[int, list]) -> None:
    """A line for each step, with the ranks' times of the step before."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        for step, seconds in rows.items():
            row = {"step": step, "loss": 4 / step, "tokens": 100 * step, "run": RUN}
            file.write(json.dumps(row | ({"rank_seconds": seconds} if seconds else {})) + "\n")


def heat_maps(*folders) -> list[dict]:
    traces = [trace for chart in page(*folders).charts for trace in chart["traces"]]
    return [trace for trace in traces if trace["type"] == "heatmap"]


def test_the_times_of_each_rank_are_a_heat_map_over_the_steps_that_have_them(tmp_path):
    rank_steps(tmp_path / "run", {1: [], 10: [0.5, 0.75, "slow"], 11: [], 20: [0.5, 1.5, 0.25]})
    (trace,) = heat_maps(tmp_path / "run")
    assert trace["y"] == ["0", "1", "2"]
    assert trace["choices"] == {"step": [10, 20], "tokens": [1000, 2000]}
    assert trace["z"] == [[0.5, 0.5], [0.75, 1.5], [None, 0.25]]
    rank_steps(tmp_path / "one", {1: [0.5], 2: []})
    assert heat_maps(tmp_path / "one") == []
    assert len(heat_maps(tmp_path / "run", tmp_path / "run")) == 2


def test_a_step_that_was_made_again_has_the_later_times(tmp_path):
    rank_steps(tmp_path / "run", {10: [1, 1], 20: [2, 2], 30: [3, 3]})
    # Resumed from step 10, on more ranks.
    rank_steps(tmp_path / "run", {20: [4, 4, 5], 40: [6, 6, 7]})
    (trace,) = heat_maps(tmp_path / "run")
    assert trace["choices"]["step"] == [10, 20, 30, 40]
    assert trace["z"] == [[1, 4, 3, 6], [1, 4, 3, 6], [None, 5, None, 7]]


def test_a_heat_map_of_many_ranks_and_steps_keeps_its_slowest(tmp_path):
    count, ranks = 1000, 600
    rows = {10 * (step + 1): [1.0] * ranks for step in range(count)}
    rows[5010][333] = 9.0
    rank_steps(tmp_path / "run", rows)
    (trace,) = heat_maps(tmp_path / "run")
    assert len(trace["z"]) <= 256 and len(trace["z"][0]) <= 400
    slow = [(row, column) for row, values in enumerate(trace["z"]) for column, z in enumerate(values) if z == 9]
    assert len(slow) == 1
    first, last = map(int, trace["y"][slow[0][0]].split("-"))
    assert first <= 333 <= last
    step = trace["choices"]["step"]
    assert step[slow[0][1]] <= 5010 <= step[slow[0][1] + 1]


@pytest.mark.parametrize("seed", range(40))
def test_odd_values_end_no_report(tmp_path, seed):
    """Any value anywhere: a page, or one sentence."""
    random = np.random.default_rng(seed)

    def odd(fields: dict) -> dict:
        return {
            key: ODD[random.integers(len(ODD))] if random.random() < 0.3 else value for key, value in fields.items()
        }

    full = {"slowest_rank": 1, "slowest_rank_share": 0.2, "peak_memory_bytes": 1, "mfu": 0.5, "tokens_per_second": 9}
    full |= {"rank_seconds": [0.1, 0.2]} | {
        f"{part}_seconds": 0.1 for part in ("forward", "backward", "optimizer", "exposed_communication", "data")
    }
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for step in range(1, 9):
            row = {"loss": 4 / step, "lr": 1e-3, "tokens": step, "time": 1.7e9 + step, "run": RUN, **full}
            file.write(json.dumps({"step": step} | odd(row)) + "\n")
    begin(
        tmp_path, **odd({"began": 1, "parameters": 2, "hosts": ["n0"], "world_size": 2, "max_steps": 9, "settings": []})
    )
    event(tmp_path, "checkpoint", **odd({"step": 4, "seconds": 1, "bytes": 2, "paused_seconds": 1, "steps": 4}))
    event(tmp_path, "warning", **odd({"text": "a", "time": 1}))
    event(tmp_path, "end", **odd({"status": "finished", "reason": "", "steps": 8}))
    for name in ("summary.json", "failure.json"):
        fields = {"run": RUN, "elapsed_seconds": 9, "step_seconds": 8, "gpu_hours": 1, "reason": "a", "time": "b"}
        (tmp_path / name).write_text(json.dumps(odd(fields)))
    assert page(tmp_path).charts


def test_runs_of_one_name_and_files_of_one_folder_are_told_apart(tmp_path):
    for name in ("a", "b"):
        steps(tmp_path / name / "run", 3)
    (tmp_path / "a/run/metrics.old-1.jsonl").write_text((tmp_path / "a/run/metrics.jsonl").read_text())
    folders = [tmp_path / "a/run", tmp_path / "b/run"]
    assert [run.name for run in read_runs(folders)] == ["a/run", "b/run"]
    runs = read_runs([folders[0], folders[0] / "metrics.old-1.jsonl"])
    assert [run.name for run in runs] == ["run/metrics.jsonl", "run/metrics.old-1.jsonl"]
    assert [run.name for run in read_runs([folders[0]] * 2)] == ["run", "run"]


def test_a_summary_of_another_run_is_not_the_runs(tmp_path):
    steps(tmp_path, 3)
    begin(tmp_path)
    summary = {"run": "00000000bbbbbbbb", "elapsed_seconds": 7200, "step_seconds": 3600, "gpu_hours": 16}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert "2:00:00" not in page(tmp_path).text()
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"run": RUN}))
    assert page(tmp_path).row("time")[0] == "2:00:00, 50% in steps, 16.00 GPU hours"


def test_a_warning_with_any_characters_is_shown(tmp_path):
    """JSON allows line separators of Unicode in a text."""
    steps(tmp_path, 3)
    begin(tmp_path)
    texts = ["rank 1\u2028is slow", "rank 2\x85is slow", "rank 3\x1cis slow"]
    with (tmp_path / "events.jsonl").open("a") as file:
        for text in texts:
            fields = {"event": "warning", "run": RUN, "start": "a", "text": text}
            file.write(json.dumps(fields, ensure_ascii=False) + "\n")
    assert [warning["text"] for warning in read_run(tmp_path).warnings] == texts


def test_text_that_utf8_does_not_have_becomes_a_question_mark(tmp_path):
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/run \xff"))
    steps(folder, 3)
    begin(folder)
    event(folder, "warning", text="rank \ud800 is slow")
    process = subprocess.run(
        [sys.executable, REPOSITORY / "app/report.py", folder], capture_output=True, timeout=120, check=False
    )
    assert (process.returncode, process.stderr) == (0, b"")
    assert process.stdout == bytes(folder) + b"/report.html\n"
    shown = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert "rank ? is slow" in shown.text() and "run ?" in shown.texts


def test_many_metrics_cost_as_much_as_they_have_values(tmp_path):
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for step in range(1, 2001):
            file.write(json.dumps({"step": step, "loss": 1.0, f"metric {step}": step, "run": RUN}) + "\n")
    tracemalloc.start()
    try:
        run = read_run(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A list of 2,000 values for each would take 32 MB.
    assert peak < 8e6
    assert run.columns["metric 7"][5:8].tolist() == [
        pytest.approx(np.nan, nan_ok=True),
        7,
        pytest.approx(np.nan, nan_ok=True),
    ]
    assert "metric 8" in run.columns and "metric 0" not in run.columns and len(run.columns) == 2002


@pytest.mark.parametrize("value", ["null", "NaN", "Infinity", '"x"', "1e400"])
def test_values_that_are_no_numbers_leave_gaps(tmp_path, value):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1, "loss": {value}}}\n{{"step": 2, "loss": 3}}\n')
    shown = page(tmp_path)
    assert shown.charts[0]["traces"][-1]["y"] == [3]


@pytest.mark.parametrize("most", [4, 10, 1000])
def test_thinning_keeps_the_ends_and_the_extremes_of_each_stretch(most):
    random = np.random.default_rng(most)
    for count in (1, most, most + 1, 5000):
        values = random.normal(size=count)
        values[random.random(count) < 0.1] = np.nan
        places = thinned(values, most)
        known = np.flatnonzero(np.isfinite(values))
        assert len(places) <= max(most, 2) and (np.diff(places) > 0).all() and np.isin(places, known).all()
        if len(known) <= most:
            assert places.tolist() == known.tolist()
            continue
        edges = np.linspace(0, len(known), most // 2).astype(int)
        extremes = [
            place
            for begin, end in pairwise(edges)
            for place in (
                known[begin + values[known[begin:end]].argmin()],
                known[begin + values[known[begin:end]].argmax()],
            )
        ]
        assert places.tolist() == sorted({int(known[0]), int(known[-1]), *map(int, extremes)})


def test_a_long_run_has_a_small_page_with_its_spike(tmp_path):
    rows = [json.dumps({"step": step, "loss": 40 if step == 12345 else 2}) for step in range(1, 50_001)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    loss = next(trace for trace in charts_of([read_run(tmp_path)])[0].traces if trace["name"] == "each step")
    assert len(loss["y"]) <= 4000
    assert loss["choices"]["step"][loss["y"].index(40)] == 12345


@pytest.mark.parametrize("width", [1, 3, 7, 101])
def test_a_mean_has_nothing_of_the_steps_that_it_does_not_cover(width):
    random = np.random.default_rng(width)
    for count in (1, 2, 6, 7, 8, 50, 1000):
        values = random.normal(size=count)
        values[random.random(count) < 0.2] = np.nan
        values[count // 3] = 1e17
        values[count // 2] = -1e308
        expected = []
        for place in range(count):
            window = values[max(0, place - width // 2) : place + width // 2 + 1]
            known = window[np.isfinite(window)]
            expected.append(known.mean() if len(known) else np.nan)
        np.testing.assert_allclose(smooth(values, width), expected, rtol=1e-9)


def run_program(*arguments) -> subprocess.CompletedProcess:
    return run_here(REPOSITORY, ["app/report.py", *map(str, arguments)])


def test_the_program_writes_the_page_next_to_its_file_and_names_it(tmp_path):
    steps(tmp_path, 3)
    (tmp_path / "metrics.old-1.jsonl").write_text((tmp_path / "metrics.jsonl").read_text())
    for words, page_file in (
        ([tmp_path], "report.html"),
        ([tmp_path / "metrics.old-1.jsonl"], "report-metrics.old-1.html"),
        ([tmp_path / "metrics.jsonl", "--output", tmp_path / "pages/a.html"], "pages/a.html"),
    ):
        process = run_program(*words)
        assert (process.returncode, process.stdout, process.stderr) == (0, f"{tmp_path / page_file}\n", "")
        assert Page((tmp_path / page_file).read_text()).charts
    assert len(list(tmp_path.iterdir())) == 5


def test_a_folder_above_runs_means_all_of_them(tmp_path):
    for name in ("lr1", "lr2", "lr2/old-1", "deep/er/lr3"):
        folder = tmp_path / "sweep" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 2.0, "run": RUN}) + "\n")
    names = [run.folder.name for run in read_runs([tmp_path / "sweep"])]
    assert names == ["lr3", "lr1", "lr2"]
    assert [run.folder.name for run in read_runs([tmp_path / "sweep/lr2"])] == ["lr2"]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (None, "metrics.jsonl does"),
        ("", "metrics.jsonl has"),
        ("[1]\n", "line 1)"),
        ('{"loss": 1}\n', "line 1)"),
        ('{"step": "1", "loss": 1}\n', "line 1)"),
    ],
)
def test_a_mistake_gets_one_sentence(tmp_path, content, place):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    process = run_program(tmp_path)
    assert process.returncode == 2
    assert place in process.stderr and process.stderr.count("\n") == 1
    with pytest.raises(ReportError):
        read_run(tmp_path)


INPUTS = ["metrics.jsonl", "events.jsonl", "node.jsonl", "failure.json", "summary.json"]


def make_large(path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), make_large])
def test_an_input_that_is_no_regular_file_is_named(tmp_path, name, make):
    steps(tmp_path, 3)
    (tmp_path / name).unlink(missing_ok=True)
    make(tmp_path / name)
    if name == "metrics.jsonl":
        with pytest.raises(ReportError, match=name):
            read_run(tmp_path / name if make is not os.mkdir else tmp_path)
    else:
        (sentence,) = read_run(tmp_path).damage
        assert name in sentence


def test_what_a_crash_has_damaged_is_left_out_and_counted(tmp_path):
    steps(tmp_path, 3)
    gap = {"event": "gap", "lines": 7, "time": 1.7e9}
    damage = ["\0" * 5000, "\x07\xff\x1b", '{"step": 5, "lo', '{"step": 5, "lo\0\0\0: 1}', "[" * 100_000, ""]
    with (tmp_path / "metrics.jsonl").open("a", encoding="latin-1") as file:
        file.write("\n".join([json.dumps(gap), *damage, '{"step": 4, "loss": 1, "time": 1e300}', "\0", "{}", '{"st']))
    begin(tmp_path)
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"event": "sta\n')
    event(tmp_path, "warning", text="shown")
    event(tmp_path, "start", "x", run="00000000bbbbbbbb")
    (tmp_path / "node.jsonl").write_text("\0\n")
    (tmp_path / "failure.json").write_text("{")
    run = read_run(tmp_path)
    assert run.columns["step"].tolist() == [1, 2, 3, 4]
    assert np.isnan(run.columns["time"][3]) and len(run.warnings) == len(run.starts) == 1
    assert run.status == "running, or ended without a message"
    assert len(run.damage) == 5
    said = " ".join(run.damage)
    for fact in (
        "metrics.jsonl has 7 damaged lines (5, 6, 7, 8, 9, 10, 12)", "events.jsonl has 1 damaged line (2)",
        "node.jsonl has 1 damaged line (1)", "failure.json", "metrics.jsonl lacks 7 lines",
    ):  # fmt: skip
        assert fact in said
    process = run_program(tmp_path)
    assert process.returncode == 0 and process.stderr.count("report.py: warning:") == process.stderr.count("\n") == 5
    shown = Page((tmp_path / "report.html").read_text()).text()
    assert all(sentence in shown for sentence in run.damage)
