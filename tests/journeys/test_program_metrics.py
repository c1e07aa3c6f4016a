"""A user asks for Prometheus' endpoint: mistakes show at once, and a port that is taken ends no training."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import pytest
import yaml
from live_run import LiveRun
from refusals import the_sentence
from tiny_run import TinyRun

from .program import mpzero

pytestmark = pytest.mark.e2e

RULES = yaml.safe_load((Path(__file__).resolve().parents[2] / "monitoring/rules.yml").read_text())["groups"][1]["rules"]
(OF_LOSS,) = [rule["expr"] for rule in RULES if rule["alert"] == "MpzeroLossNotFinite"]
(NOT_FINITE,) = re.findall(r'reason=~"([^"]+)"', OF_LOSS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def events_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--metrics_port=70000"], "--metrics_port 70000 is too large; it must be 65535 or less"),
        (["--metrics_port=9410", "--metrics_address=localhost"], '--metrics_address "localhost" is not an IP address'),
        (
            ["--metrics_port=9410", "--metrics_sd_dir=targets"],
            "pass --metrics_address 0.0.0.0",
        ),
    ],
)
def test_a_mistake_shows_in_the_dry_run_and_in_the_run(tmp_path: Path, flags: list[str], sentence: str) -> None:
    run = TinyRun(tmp_path, ranks=1)
    for more in ([], ["--dry_run"]):
        refused = mpzero("train", *run.flags(), *flags, *more)
        assert refused.returncode == 2
        assert sentence in the_sentence(refused.stderr)


def test_a_port_that_is_taken_is_a_warning_and_training_continues(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    targets = tmp_path / "targets"
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run.train(
            "--max_steps=2", f"--metrics_port={port}", "--metrics_address=0.0.0.0", f"--metrics_sd_dir={targets}"
        )
    warnings = [line for line in result.stderr.splitlines() if "--metrics_port" in line]
    assert len(warnings) == 1, result.stderr
    assert f"warning: --metrics_port {port}: cannot listen on 0.0.0.0 on host {socket.gethostname()}" in warnings[0]
    assert "training continues without this host's metrics" in warnings[0]
    assert run.metrics()[-1]["step"] == 2
    # It came before the events were open, and they have it, with no port that another run's endpoint has.
    start, *events = events_of(tmp_path)
    assert start["event"] == "start" and start["metrics_port"] == 0
    assert warnings[0].removeprefix("mpzero: warning: ") in [event.get("text") for event in events]


def test_the_node_of_a_run_is_recorded_for_its_report(tmp_path: Path) -> None:
    run = TinyRun(tmp_path)
    run.train("--max_steps=2")
    lines = [json.loads(line) for line in (tmp_path / "node.jsonl").read_text().splitlines()]
    start = events_of(tmp_path)[0]
    assert len(lines) == 2
    for line in lines:
        assert (line["run"], line["start"], line["host"]) == (start["run"], start["start"], socket.gethostname())
        assert line["sent_bytes"] >= 0 and "gpus" not in line


def test_the_events_have_the_endpoint_and_the_warnings_and_a_folder_that_cannot_be_written_ends_nothing(
    tmp_path: Path,
) -> None:
    run = TinyRun(tmp_path, ranks=1)
    (tmp_path / "file").write_text("")
    endpoint = (f"--metrics_port={free_port()}", "--metrics_address=0.0.0.0", f"--metrics_sd_dir={tmp_path / 'file'}")
    result = run.train("--max_steps=1", "--profile_ranks=0", *endpoint)
    start, *events = events_of(tmp_path)
    assert start["metrics_address"] == "0.0.0.0" and start["metrics_port"] > 0
    printed = [line for line in result.stderr.splitlines() if line.startswith("mpzero: warning: ")]
    recorded = [event["text"] for event in events if event["event"] == "warning"]
    assert [f"mpzero: warning: {text}" for text in recorded] == printed
    assert len(printed) >= 2 and any("--metrics_sd_dir" in line for line in printed)
    assert events[-1]["event"] == "end" and events[-1]["status"] == "finished"


def test_a_run_that_fails_stays_a_target_of_prometheus_that_says_why(tmp_path: Path) -> None:
    run = TinyRun(
        tmp_path,
        ranks=1,
        config={"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e38, "warmup_num_steps": 2}}},
    )
    targets = tmp_path / "targets"
    served = (f"--metrics_port={free_port()}", "--metrics_address=0.0.0.0", f"--metrics_sd_dir={targets}")
    failed = run.train("--max_steps=9", *served, check=False)
    assert failed.returncode == 1
    (file,) = targets.iterdir()
    (group,) = json.loads(file.read_text())
    labels = group["labels"]
    assert labels["discovered_run_id"] == file.stem and labels["end"] == "failed"
    # An alert is about such a sentence.
    assert re.match(NOT_FINITE, labels["reason"]), labels["reason"]
    assert labels["reason"] in failed.stderr
    # A run that ends as it should is asked no more.
    run.config = {}
    run.train("--max_steps=2", *served, "--overwrite")
    assert list(targets.iterdir()) == [file]


def test_a_run_that_loses_a_rank_says_so_to_prometheus(tmp_path: Path) -> None:
    run, targets = TinyRun(tmp_path, ranks=2), tmp_path / "targets"
    flags = (f"--metrics_port={free_port()}", "--metrics_address=0.0.0.0", f"--metrics_sd_dir={targets}")
    with LiveRun(run, "--max_steps=100000", "--checkpoint_freq=0", *flags) as live:
        live.wait_for_step(3)
        live.signal(signal.SIGKILL, 1)
        assert live.finish() not in (0, 2, 75)
    (file,) = targets.iterdir()
    (group,) = json.loads(file.read_text())
    assert group["labels"]["end"] == "failed"
    assert "rank 1" in group["labels"]["reason"]
