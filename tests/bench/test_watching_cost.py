"""bench/watching_cost.py: with a script in place of mpzero whose steps take as long as it says, and with mpzero."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import watching_cost
from tiny_run import TinyRun
from trainer import BUILD
from watching_cost import Period, Side, figures_of, steps_of

# Steps of 10 ms until it is ended, the first of which takes 9 s by its own word. One that a scrape has come in takes
# 1 ms more.
TRAINER = f"""#!{sys.executable}
import http.server, json, sys, threading, time

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        scraped.set()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"mpzero_up 1\\n")

    def log_message(self, *_):
        pass

flags = dict(word[2:].split("=", 1) for word in sys.argv[2:])
scraped = threading.Event()
address = ("127.0.0.1", int(flags["metrics_port"]))
threading.Thread(target=http.server.HTTPServer(address, Page).serve_forever, daemon=True).start()
step = 0
while True:
    step += 1
    time.sleep(0.01)
    seconds = 9 if step == 1 else 0.011 if scraped.is_set() else 0.01
    scraped.clear()
    with open(flags["metrics_file"], "a") as metrics:
        metrics.write(json.dumps({{"step": step, "step_seconds": seconds, "time": time.time()}}) + "\\n")
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    program = tmp_path / "build" / "bin" / "mpzero"
    program.parent.mkdir(parents=True)
    program.write_text(TRAINER)
    program.chmod(0o755)
    return tmp_path / "build"


def measure(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["watching_cost.py", *map(str, words)])
    return watching_cost.main()


def test_the_cost_is_that_of_the_steps_in_a_period(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    flags = ["--runs=2", "--rounds=2", "--period_seconds=0.3", "--warm_up=1", "--idle=0", "--scrape_seconds=0.001"]
    assert measure(monkeypatch, tmp_path / "out", "--build", build, "--train_data", "none.h5", *flags) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    for side in ("unwatched", "unwatched_again", "client_alone"):
        assert figures[side]["mean_step_ms"] == {"median": 10, "least": 10, "greatest": 10}, side
    assert figures["unwatched_again"]["ratio"]["mean"]["greatest"] == 1
    for side in ("scraped", "watched"):
        assert 1 < figures[side]["ratio"]["mean"]["least"] <= 1.1, side
        assert figures[side]["scrapes"]["answered"] >= 4
    # The user's file, with the micro-batch that is measured.
    config = json.loads((tmp_path / "out" / "run-1" / "ds_config.json").read_text())
    assert config["train_micro_batch_size_per_gpu"] == 1
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"


def test_an_endpoint_that_answers_nothing_measures_nothing(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="run-1: no scrape was answered"):
        measure(
            monkeypatch,
            *[tmp_path / "out", "--build", build, "--train_data", "none.h5", "--without_offload"],
            *["--rounds=1", "--warm_up=1", "--period_seconds=0.3", "--scrape_seconds=1000"],
        )
    config = json.loads((tmp_path / "out" / "run-1" / "ds_config.json").read_text())
    assert config["zero_optimization"] == {"stage": 2}


def test_a_run_that_fails_is_named_with_the_end_of_its_log(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (build / "bin" / "mpzero").write_text("#!/bin/sh\necho no such data\nexit 2\n")
    with pytest.raises(SystemExit, match=r"run-1: mpzero ended with status 2(.|\n)*no such data"):
        measure(monkeypatch, tmp_path / "out", "--build", build, "--train_data", "none.h5")


def test_a_step_counts_if_all_of_it_lies_in_a_period() -> None:
    watched, unwatched = Side("watched"), Side("unwatched")
    periods = [Period(watched, 10, 12), Period(unwatched, 12, 14), Period(watched, 14, 16)]
    ends = [10.5, 11.5, 12.5, 13.5, 14.5, 15.5, 16.5]
    lines = [{"time": time, "step_seconds": 1 if time < 14 else 0.5} for time in ends]
    # Those that end at 10.5 and 12.5 began in the period before; 16.5 is after the last.
    assert steps_of(lines, periods, watched) == [1, 0.5, 0.5]
    assert steps_of(lines, periods, unwatched) == [1]


def test_runs_are_compared_one_by_one() -> None:
    unwatched = Side("unwatched", medians=[0.010, 0.020, 0.040], means=[0.010, 0.020, 0.040])
    watched = Side("watched", medians=[0.011, 0.020, 0.042], means=[0.020, 0.040, 0.080], scrape_seconds=[0.001, 0.003])
    figures = figures_of([unwatched, watched])
    assert figures["unwatched"]["median_step_ms"] == {"median": 20, "least": 10, "greatest": 40}
    assert figures["watched"]["ratio"]["median"] == {"median": 1.05, "least": 1.0, "greatest": 1.1}
    assert figures["watched"]["ratio"]["mean"]["median"] == 2
    assert figures["watched"]["scrapes"] == {"answered": 2, "median_ms": 2, "longest_ms": 3}


@pytest.mark.skipif(not (BUILD / "bin" / "mpzero").exists(), reason="needs build/bin/mpzero")
def test_mpzero_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    run = TinyRun(tmp_path / "tiny")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["--model_config", tmp_path / "tiny" / "tiny.json", "--train_data", run.data, "--build", BUILD]
    flags = ["--seq_length=16", "--runs=1", "--rounds=1", "--idle=100", "--scrape_seconds=0.02", "--device=cpu"]
    assert measure(monkeypatch, tmp_path / "out", *words, *flags) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    for side in ("watched", "client_alone"):
        assert figures[side]["scrapes"]["answered"] > 1
        assert figures[side]["idle_connections"] == 100
        assert figures[side]["ratio"]["median"]["median"] > 0
