"""app/run_follow/train_job.py: a TrainJob's status, against a server that takes what Kubeflow Trainer's takes."""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from .conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "app"))
from run_follow import train_job
from run_follow.following import FollowError, row_of

sys.path.pop(0)

RUN = "00000000aaaaaaaa"


def row(step: int, **values: float):
    fields = {"step": step, "time": 1_700_000_000.0, "run": RUN, "loss": 2.5, "step_seconds": 0.5, **values}
    return row_of(fields, json.dumps(fields).encode())


class Server:
    """Keeps what it gets; answers with `status`."""

    def __init__(self):
        self.status = 200
        self.location = ""
        self.got: list[tuple[str, dict]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.got.append((self.headers["Authorization"], body))
                if outer.status == "garbage":
                    self.wfile.write(b"no HTTP\r\n\r\n")
                    return
                self.send_response(outer.status)
                if outer.location:
                    self.send_header("Location", outer.location)
                self.end_headers()

            def do_GET(self):
                outer.got.append((self.headers["Authorization"], {}))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(tmp_path, monkeypatch):
    made = Server()
    (tmp_path / "token").write_text("first\n")
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", f"http://127.0.0.1:{made.http.server_port}/x")
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_TOKEN", str(tmp_path / "token"))
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_CA_CERT", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(train_job, "PAUSE_SECONDS", 0.0)
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def sink(server, tmp_path):
    start = {"event": "start", "run": RUN, "max_steps": 50}
    lines = [{**start, "max_steps": 10}, {**start, "run": "00000000bbbbbbbb", "max_steps": 7}, start]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"cut')
    return train_job.TrainJobStatus(tmp_path / "trainjob", "mpzero")


def test_the_newest_step_is_the_progress(server, sink):
    sink.begin(RUN, 1)
    for step in (9, 10):
        sink.write(row(step))
    sink.flush()
    assert server.got == [
        (
            "Bearer first",
            {
                "trainerStatus": {
                    "metrics": [
                        {"name": "step", "value": "10"},
                        {"name": "loss", "value": "2.5"},
                        {"name": "step_seconds", "value": "0.5"},
                    ],
                    "lastUpdatedTime": "2023-11-14T22:13:20+00:00",
                    "progressPercentage": 20,
                    "estimatedRemainingSeconds": 20,
                }
            },
        )
    ]


def test_a_token_that_was_renewed_is_read_again(server, sink, tmp_path):
    sink.write(row(1))
    sink.flush()
    (tmp_path / "token").write_text("second")
    sink.write(row(2))
    sink.close()
    assert [token for token, _ in server.got] == ["Bearer first", "Bearer second"]


def test_it_is_not_asked_more_often_than_it_should_be(server, sink, monkeypatch):
    monkeypatch.setattr(train_job, "PAUSE_SECONDS", 3600.0)
    for step in range(1, 20):
        sink.write(row(step))
        sink.flush()
    sink.close()
    # The first and the last.
    assert [body["trainerStatus"]["metrics"][0]["value"] for _, body in server.got] == ["1", "19"]


@pytest.mark.parametrize("broken", ["status", "token", "two lines", "pipe", "address", "garbage"])
def test_a_server_that_does_not_take_it_gets_one_warning_and_the_next_step(server, sink, capsys, tmp_path, broken):
    if broken == "status":
        server.status = 403
    elif broken == "token":
        (tmp_path / "token").unlink()
    elif broken == "two lines":
        (tmp_path / "token").write_text("secret\nX-Other: 1")
    elif broken == "pipe":
        (tmp_path / "token").unlink()
        os.mkfifo(tmp_path / "token")
    elif broken == "garbage":
        server.status = "garbage"
    else:
        sink.address = "http://127.0.0.1:1/"
    for step in (1, 2):
        sink.write(row(step))
        sink.flush()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot update" in said and "secret" not in said


def test_a_run_whose_end_is_not_known_has_no_percentage(server, tmp_path):
    sink = train_job.TrainJobStatus(tmp_path / "elsewhere/trainjob", "mpzero")
    sink.write(row(10))
    sink.close()
    assert "progressPercentage" not in server.got[0][1]["trainerStatus"]


def test_steps_beyond_the_end_are_no_more_than_all(server, sink):
    sink.write(row(60))
    sink.close()
    status = server.got[0][1]["trainerStatus"]
    assert (status["progressPercentage"], status["estimatedRemainingSeconds"]) == (100, 0)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_gets_no_token(server, sink, capsys, status):
    other = Server()
    server.status, server.location = status, f"http://localhost:{other.http.server_port}/y"
    sink.write(row(1))
    sink.close()
    assert (len(server.got), other.got) == (1, [])
    assert str(status) in capsys.readouterr().err
    other.http.shutdown()
    other.http.server_close()


def test_a_proxy_gets_no_token(server, sink, monkeypatch):
    other = Server()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{other.http.server_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    sink.write(row(1))
    sink.close()
    assert (len(server.got), other.got) == (1, [])
    other.http.shutdown()
    other.http.server_close()


@pytest.mark.parametrize(
    "address",
    ["http://10.0.0.1/x", "http://localhost.example.org/x", "ftp://127.0.0.1/", "file:///x", "x", "http://[::1"],
)
def test_the_token_goes_over_no_open_network(server, monkeypatch, tmp_path, address):
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", address)
    with pytest.raises(FollowError, match="KUBEFLOW_TRAINER_SERVER_URL"):
        train_job.TrainJobStatus(tmp_path / "trainjob", "mpzero")


@pytest.mark.parametrize("fields", [{"time": 1e300}, {"time": -1}, {"time": "now"}, {"step_seconds": 1e308}])
def test_odd_numbers_end_no_follower(server, sink, capsys, fields):
    sink.write(row(1, **fields))
    sink.close()
    assert len(server.got) == 1 and capsys.readouterr().err == ""


def test_elsewhere_it_is_a_mistake(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBEFLOW_TRAINER_SERVER_URL", raising=False)
    with pytest.raises(FollowError, match="TrainJobStatus"):
        train_job.TrainJobStatus(tmp_path, "mpzero")
