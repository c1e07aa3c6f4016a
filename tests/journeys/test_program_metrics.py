"""A user asks for Prometheus' endpoint: mistakes show at once, and a port that is taken ends no training."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from refusals import the_sentence
from tiny_run import TinyRun

from .program import mpzero

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--metrics_port=70000"], "--metrics_port 70000 is too large; it must be 65535 or less"),
        (["--metrics_port=9410", "--metrics_address=localhost"], '"localhost" is no IP address; give 127.0.0.1'),
        (
            ["--metrics_port=9410", "--metrics_sd_dir=targets"],
            "--metrics_address 127.0.0.1 answers that node alone; give --metrics_address 0.0.0.0",
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
    assert f"warning: --metrics_port {port} of 0.0.0.0 cannot be opened on {socket.gethostname()}" in warnings[0]
    assert "training continues without the metrics of this node" in warnings[0]
    assert run.metrics()[-1]["step"] == 2


def test_a_folder_of_targets_that_cannot_be_written_ends_no_training(tmp_path: Path) -> None:
    run = TinyRun(tmp_path, ranks=1)
    (tmp_path / "file").write_text("")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = run.train(
        "--max_steps=1", f"--metrics_port={port}", "--metrics_address=0.0.0.0", f"--metrics_sd_dir={tmp_path / 'file'}"
    )
    assert "Prometheus does not learn of this run" in result.stderr
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "end" and events[-1]["status"] == "finished"
