"""A real Prometheus with the configuration in monitoring/: what it keeps of the targets that runs have left."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

MONITORING = Path(__file__).resolve().parents[2] / "monitoring"
# Only ends a test that hangs.
LIMIT_SECONDS = 120


class Endpoint(BaseHTTPRequestHandler):
    """Answers as the run `later` does."""

    def do_GET(self) -> None:
        text = b'mpzero_up{run_id="later",node="n1"} 1\n'
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Prometheus:
    """Scrapes the targets in `folder`/targets once a second."""

    def __init__(self, folder: Path):
        program = shutil.which("prometheus")
        if program is None:
            pytest.skip("prometheus is not installed")
        configuration = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        shutil.copy(MONITORING / "rules.yml", folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.process = subprocess.Popen(
            [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.address}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)

    def ask(self, query: str) -> list[dict]:
        """The labels of each sample."""
        url = f"http://{self.address}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return [one["metric"] for one in json.loads(answer.read())["data"]["result"]]
        except (urllib.error.URLError, ConnectionError):
            return []

    def wait_for(self, query: str, samples: int) -> list[dict]:
        deadline = time.monotonic() + LIMIT_SECONDS
        while len(answer := self.ask(query)) < samples:
            assert self.process.poll() is None and time.monotonic() < deadline, f"{query}: {answer}"
            time.sleep(0.1)
        return answer


def leave_target(folder: Path, run: str, address: str) -> None:
    content = [{"targets": [address], "labels": {"discovered_run_id": run, "model": "qwen3"}}]
    (folder / f"{run}.json").write_text(json.dumps(content))


def test_a_run_counts_once_on_the_port_of_one_that_was_killed_which_is_down(tmp_path: Path) -> None:
    targets = tmp_path / "targets"
    targets.mkdir()
    with endpoint() as address:
        for run in ("killed", "later"):
            leave_target(targets, run, address)
        with Prometheus(tmp_path) as prometheus:
            # Each of the two targets has been scraped.
            up = prometheus.wait_for('up{job="mpzero"} == 1', 2)
            assert {labels["discovered_run_id"] for labels in up} == {"killed", "later"}
            prometheus.wait_for("mpzero_up", 1)
            (series,) = prometheus.ask("mpzero_up")
            assert series["run_id"] == series["discovered_run_id"] == "later"
            (alert,) = prometheus.wait_for('ALERTS{alertname="MpzeroDown"}', 1)
            assert alert["discovered_run_id"] == "killed"
