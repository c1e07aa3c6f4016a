"""bench/tcp_streams.py over the loopback interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tcp_streams

PROGRAM = [sys.executable, tcp_streams.__file__]


def test_streams_of_one_machine(capsys: pytest.CaptureFixture) -> None:
    assert tcp_streams.main(["local", "--interface", "lo", "--streams", "1", "2", "--seconds", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["address"] == "127.0.0.1" and found["round_trip_us"] > 0
    for way in ("sent", "received", "both_ways"):
        assert list(found[way]) == ["1", "2"] and all(rate > 0 for rate in found[way].values())
    assert found["gigabytes_per_second"] == max(found["sent"].values())


def test_a_server_s_end_ends_its_connections() -> None:
    with subprocess.Popen([*PROGRAM, "serve", "--port", "0"]) as serving:
        pid = serving.pid
        port = None
        deadline = time.monotonic() + 60
        while port is None:
            assert time.monotonic() < deadline
            inodes = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
                words = line.split()
                if f"socket:[{words[9]}]" in inodes:
                    port = int(words[1].split(":")[1], 16)
        with tcp_streams.connect(("127.0.0.1", port), tcp_streams.ECHO) as connection:
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            # Until it waits for the next connection: it knows of the process then.
            while " S " not in Path(f"/proc/{pid}/stat").read_text():
                assert time.monotonic() < deadline
            serving.terminate()
            serving.wait(60)
            connection.settimeout(30)
            # Nobody has it any more.
            assert connection.recv(1) == b""


def test_nobody_there_is_one_sentence(capsys: pytest.CaptureFixture) -> None:
    # A port that nobody listens at, because it is taken and not listened at.
    with tcp_streams.socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert tcp_streams.main(["measure", "127.0.0.1", "--port", str(taken.getsockname()[1])]) == 1
    assert "refused" in capsys.readouterr().err


def test_two_tasks_of_a_slurm_step(tmp_path: Path) -> None:
    """They meet by a file, which an earlier step's does not disturb."""
    file = tmp_path / "streams.json"
    file.with_suffix(".address").write_text('["127.0.0.1", 1, "6"]')
    words = [*PROGRAM, "slurm", str(file), "--streams", "1", "--seconds", "1"]
    tasks = [
        subprocess.Popen(words, env={**os.environ, "SLURM_PROCID": str(task), "SLURM_STEP_ID": "7"}) for task in (1, 0)
    ]
    try:
        assert [task.wait(timeout=100) for task in tasks] == [0, 0]
    finally:
        for task in tasks:
            task.kill()
    assert json.loads(file.read_text())["gigabytes_per_second"] > 0
    assert list(tmp_path.iterdir()) == [file]
