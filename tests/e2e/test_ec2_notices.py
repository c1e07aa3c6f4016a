"""A run on an instance that EC2 is about to take back saves, stops with status 75, and names the host to leave."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from live_run import LiveRun, hang_at
from test_stops import ENDLESS, STOPPED, assert_resumes_with_the_same_bits
from tiny_run import TinyRun

pytestmark = pytest.mark.e2e

INTERRUPTION = {"action": "terminate", "time": "2100-01-01T00:00:00Z"}


class Service(ThreadingHTTPServer):
    """A stand-in for the metadata service: `pages` by what follows /latest/meta-data/; any other: 404."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, str] = {"instance-id": "i-0123456789abcdef0"}
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.reply(200, "secret" if self.path == "/latest/api/token" else "")

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        page = self.server.pages.get(self.path.removeprefix("/latest/meta-data/"))
        if self.headers["X-aws-ec2-metadata-token"] != "secret":
            self.reply(401, "")
        else:
            self.reply(404 if page is None else 200, page or "")

    def reply(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_an_interruption_saves_the_run_and_names_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    monkeypatch.setenv("SLURMD_NODENAME", "node-7")
    run = TinyRun(tmp_path / "run")
    with service(monkeypatch) as ec2, LiveRun(run, *ENDLESS) as live:
        live.wait_for_step(2)
        ec2.pages["spot/instance-action"] = json.dumps(INTERRUPTION)
        assert live.finish() == STOPPED, live.errors
    reason = "EC2 spot interruption of instance i-0123456789abcdef0 at 2100-01-01T00:00:00Z (terminate) on host node-7"
    step = run.metrics()[-1]["step"]
    assert f"Stopped by {reason} after step {step} and saved" in live.output
    report = json.loads((run.checkpoints / "stop.json").read_text())
    assert report == {"job": "17", "restart": 2, "reason": reason, "hosts": ["node-7"]}
    assert not (run.checkpoints / "failures").exists()
    monkeypatch.undo()
    assert_resumes_with_the_same_bits(tmp_path, run, step)


def test_a_warning_of_ec2s_thread_is_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = TinyRun(tmp_path / "run")
    with service(monkeypatch) as ec2:
        # Known before the run began: it is no reason to stop.
        ec2.pages["events/recommendations/rebalance"] = json.dumps({"noticeTime": "2020-10-27T08:22:00Z"})
        with LiveRun(run, *ENDLESS) as live:
            live.wait_for_step(2)
            events = run.folder / "events.jsonl"
            warning = "EC2 rebalance recommendation for instance i-0123456789abcdef0"
            live.wait_for(lambda: warning in events.read_text(), "event")
    texts = [json.loads(line).get("text", "") for line in events.read_text().splitlines()]
    assert len([text for text in texts if text.startswith(warning)]) == 1


def test_an_interruption_before_the_first_step_names_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 waits for the file of metrics, so that no step begins and only the watchdog can end the run."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    monkeypatch.setenv("SLURMD_NODENAME", "node-7")
    run = TinyRun(tmp_path / "run")
    hang_at("metrics.jsonl", run, monkeypatch)
    with service(monkeypatch) as ec2, LiveRun(run, *ENDLESS) as live:
        live.wait_for(lambda: any(run.folder.glob("hangs-*")), "rank that hangs")
        live.wait_for(lambda: len(live.ranks()) == run.ranks, "ranks")
        ec2.pages["spot/instance-action"] = json.dumps(INTERRUPTION)
        assert live.finish() == STOPPED, live.errors
    report = json.loads((run.checkpoints / "stop.json").read_text())
    assert (report["job"], report["restart"], report["hosts"]) == ("17", 2, ["node-7"])
    assert report["reason"].startswith("EC2 spot interruption of instance i-0123456789abcdef0")
    assert not (run.checkpoints / "failures").exists()


def test_without_the_flag_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(monkeypatch) as ec2:
        ec2.pages["spot/instance-action"] = json.dumps(INTERRUPTION)
        run = TinyRun(tmp_path / "run")
        run.train("--max_steps=3", "--ec2_notices=false")
        assert run.metrics()[-1]["step"] == 3
        assert not ec2.asked


def test_an_endpoint_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "169.254.169.254")
    run = TinyRun(tmp_path / "run")
    with LiveRun(run, "--max_steps=3") as live:
        assert live.process.wait() == 2
    assert "AWS_EC2_METADATA_SERVICE_ENDPOINT is '169.254.169.254', not of the form" in live.errors
