"""bench/watching_cost.py: with a script in place of mpzero whose steps take as long as it says, and with mpzero."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
import watching_cost
from tiny_run import TinyRun
from trainer import BUILD
from watching_cost import Client, Side, StandIn, figures_of, free_port

# Four steps of which one is the warm-up. With an endpoint each takes a tenth longer, and the last waits for a scrape.
TRAINER = f"""#!{sys.executable}
import http.server, json, sys, threading, time

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"mpzero_up 1\\n")
        scraped.set()

    def log_message(self, *_):
        pass

flags = dict(word[2:].split("=", 1) for word in sys.argv[2:])
scraped = threading.Event()
seconds = 0.05
if "metrics_port" in flags:
    seconds = 0.055
    address = ("127.0.0.1", int(flags["metrics_port"]))
    threading.Thread(target=http.server.HTTPServer(address, Page).serve_forever, daemon=True).start()
for step in range(1, int(flags["max_steps"]) + 1):
    if "metrics_port" in flags and step == int(flags["max_steps"]):
        scraped.wait()
    line = {{"step": step, "step_seconds": 9 if step == 1 else seconds, "time": time.time()}}
    with open(flags["metrics_file"], "a") as metrics:
        metrics.write(json.dumps(line) + "\\n")
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


def test_the_cost_is_that_of_the_steps_after_the_warm_up(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    flags = ["--steps=3", "--warm_up=1", "--turns=2", "--idle=0", "--scrape_seconds=0.01"]
    assert measure(monkeypatch, tmp_path / "out", "--build", build, "--train_data", "none.h5", *flags) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["without"]["median_step_ms"] == {"median": 50, "least": 50, "greatest": 50}
    assert figures["watched"]["mean_step_ms"]["median"] == 55
    assert figures["watched"]["ratio"]["mean"]["median"] == 1.1
    assert figures["watched"]["scrapes"]["answered"] >= 2
    # The user's file, with the micro-batch that is measured.
    config = json.loads((tmp_path / "out" / "turn-1-watched" / "ds_config.json").read_text())
    assert config["train_micro_batch_size_per_gpu"] == 1
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"


def test_a_watched_run_without_an_answer_measures_nothing(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = build / "bin" / "mpzero"
    program.write_text(program.read_text().replace("scraped.wait()", "pass"))
    with pytest.raises(SystemExit, match="turn-1-watched: no scrape was answered"):
        measure(
            monkeypatch,
            *[tmp_path / "out", "--build", build, "--train_data", "none.h5", "--without_offload"],
            *["--steps=3", "--warm_up=1", "--scrape_seconds=1000"],
        )
    config = json.loads((tmp_path / "out" / "turn-1-watched" / "ds_config.json").read_text())
    assert config["zero_optimization"] == {"stage": 2}


def test_a_run_that_fails_is_named_with_the_end_of_its_log(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (build / "bin" / "mpzero").write_text("#!/bin/sh\necho no such data\nexit 2\n")
    with pytest.raises(SystemExit, match=r"turn-1-without: mpzero ended with status 2(.|\n)*no such data"):
        measure(monkeypatch, tmp_path / "out", "--build", build, "--train_data", "none.h5")


def test_turns_are_compared_one_by_one() -> None:
    without = Side("without", medians=[0.010, 0.020, 0.040], means=[0.010, 0.020, 0.040])
    watched = Side("watched", medians=[0.011, 0.020, 0.042], means=[0.020, 0.040, 0.080], scrapes=[0.001, 0.003])
    figures = figures_of([without, watched])
    assert figures["without"]["median_step_ms"] == {"median": 20, "least": 10, "greatest": 40}
    assert figures["watched"]["ratio"]["median"] == {"median": 1.05, "least": 1.0, "greatest": 1.1}
    assert figures["watched"]["ratio"]["mean"]["median"] == 2
    assert figures["watched"]["scrapes"] == {"answered": 2, "median_ms": 2, "longest_ms": 3}


def test_connections_that_were_closed_are_opened_again() -> None:
    """The stand-in keeps 64 of them, as the endpoint does."""
    server = StandIn(free_port())
    server.start()
    client = Client(server.listener.getsockname()[1], idle=100, period=0.01)
    client.start()
    deadline = time.monotonic() + 60
    while len(client.scrapes) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    client.stop()
    server.stop()
    assert len(client.scrapes) >= 3
    assert client.most_idle == 100


@pytest.mark.skipif(not (BUILD / "bin" / "mpzero").exists(), reason="needs build/bin/mpzero")
def test_mpzero_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    run = TinyRun(tmp_path / "tiny")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["--model_config", tmp_path / "tiny" / "tiny.json", "--train_data", run.data, "--build", BUILD]
    flags = ["--seq_length=16", "--steps=1000", "--turns=1", "--idle=100", "--scrape_seconds=0.02", "--device=cpu"]
    assert measure(monkeypatch, tmp_path / "out", *words, *flags, "--control") == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    for side in ("watched", "client_alone"):
        assert figures[side]["scrapes"]["answered"] > 1
        assert figures[side]["idle_connections"] == 100
        assert figures[side]["ratio"]["median"]["median"] > 0
