"""`mpzero top` shows what a run's files and its nodes' endpoints say now, whatever is in them."""

import contextlib
import fcntl
import http.server
import json
import math
import os
import pty
import random
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading

import pytest

from .conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "app"))
from run_top.frame import bar, columns_of, cut, duration, frame_of, sparkline
from run_top.nodes import NodeView, samples_of, view_of
from run_top.reading import RunReader, RunView, TopError

sys.path.pop(0)

START = {
    "event": "start", "run": "r1", "start": "a", "model_type": "tiny", "hosts": ["n1", "n1", "n2", "n2"],
    "max_steps": 400, "began": 1000,
}  # fmt: skip
STEP = {
    "step": 100, "run": "r1", "time": 1200, "loss": 2.5, "lr": 3e-5, "grad_norm": 1.25, "tokens_per_second": 12000,
    "step_seconds": 0.5, "forward_seconds": 0.1, "backward_seconds": 0.3, "optimizer_seconds": 0.1,
}  # fmt: skip


def append(path, *lines) -> None:
    with path.open("a") as file:
        file.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)


def events(folder, *lines) -> None:
    append(folder / "events.jsonl", *lines)


def metrics(folder, *lines) -> None:
    append(folder / "metrics.jsonl", *lines)


def view(folder, *of_metrics, start=START) -> RunView:
    events(folder, start)
    metrics(folder, *of_metrics)
    return RunReader(folder).update()


def shown(run: RunView, now: float = 1201, width: int = 80, rows: int = 24, nodes=()) -> str:
    return "".join(f"{line}\n" for line in frame_of(run, list(nodes), now, width, rows))


def test_a_run_in_80_columns(tmp_path):
    text = shown(view(tmp_path, *(STEP | {"step": at, "loss": loss} for at, loss in ((98, 4), (99, 3), (100, 2.5)))))
    assert "tiny  run r1  4 ranks on 2 hosts\ntraining\n" in text
    assert "] step 100 of 400 (25%), 0.5 s each, 2 min 30 s left\nloss   2.5000  █▃▁\n" in text
    assert "lr     3e-05  grad norm 1.25  12000 tokens/s\n" in text
    assert "time    forward 20%  backward 60%  optimizer 20%\nsaved  no checkpoint" in text


def test_a_run_that_starts_is_silent_or_has_ended_says_so(tmp_path):
    assert shown(view(tmp_path)).endswith("starting (3 min 21 s)\n")
    run = view(tmp_path, STEP)
    assert run.starts == 2
    assert "no step for 1 min 40 s\n" in shown(run, 1300)
    run.step["step_seconds"] = 20  # a long step is no silence
    assert "\ntraining\n" in shown(run, 1300)
    run.end = {"status": "failed", "reason": "the loss is NaN"}
    assert "\nfailed: the loss is NaN\n" in shown(run, 9999) and " left" not in shown(run, 9999)
    run.end, run.start = {}, START | {"began": 1250}  # a new start, whose first step has not ended
    assert "start 2\nstarting (10 s)\n" in shown(run, 1260)


def test_a_run_without_a_metrics_file_shows_what_it_saves(tmp_path):
    run = view(tmp_path, STEP, start=START | {"metrics_file": ""})
    events(tmp_path, {"event": "warning", "run": "r1", "text": "rank 1 is slow"})
    run = RunReader(tmp_path).update()
    text = shown(run, 1120, nodes=[NodeView("n1")])
    assert "steps are unknown" in text and text.endswith(
        "no checkpoint since the last start\nwarn   rank 1 is slow\nn1\n"
    )
    events(tmp_path, {"event": "checkpoint", "run": "r1", "step": 30, "time": 1060, "seconds": 1.5})
    assert "saved  step 30, 1 min 0 s ago, in 1.5 s\n" in shown(RunReader(tmp_path).update(), 1120)


def test_each_rank_has_a_bar_and_of_many_the_slowest_are_shown(tmp_path):
    run = view(tmp_path, STEP | {"rank_seconds": [0.1, 0.2, 0.4, None]})
    assert f"rank 2     n2                 {'█' * 36} 400.0 ms\n" in shown(run)
    assert f"rank 1     n1                 {'█' * 18} " in shown(run)
    run.start["hosts"][0] = "模型"
    assert "rank 0     模型" + " " * 15 + "█" in shown(run)
    run.rank_seconds = [0.1] * 777 + [0.3] + [0.1] * 222
    lines = frame_of(run, [], 1201, 80, 24)
    assert len(lines) == 24 and lines[7].startswith("rank 777") and lines[-1] == "984 faster ranks are not shown"


def test_what_the_terminal_has_is_never_exceeded(tmp_path):
    gpus = {
        i: {"utilization_ratio": 0.98, "sm_clock_hertz": 1.98e9, "power_watts": 650, "throttled": 1} for i in range(8)
    }
    nodes = [
        NodeView("n2", problem="cannot read metrics from port 9410: Connection refused"),
        NodeView("n1", cpu=0.5, sent=1.5e9, memory_available=3 << 30, gpus=gpus),
    ]
    run = view(tmp_path, STEP | {"rank_seconds": [0.1] * 100})
    text = shown(run, rows=40, nodes=nodes)
    assert "n1  CPU 50%  3 GiB free  sends 1.50 GB/s\n  GPU 0   98%  1980 MHz   650 W  throttled\n" in text
    assert "n2: cannot read metrics from port 9410: Connection refused\n" in text
    run.warning = "\033[2Jrank 3 is slow" + "x" * 300
    run.start["model_type"] = "ä\u009b2J\x7f\udcff\u202e" + "m" * 100
    for rows in (1, 2, 5, 7, 8, 9, 10, 24, 40, 200):
        for width in (20, 40, 80, 200):
            lines = frame_of(run, nodes, 1201, width, rows)
            assert len(lines) <= rows and (rows > 20 or len(lines) == rows)
            assert all(columns_of(line) <= width and line.isprintable() for line in lines)


def test_texts_are_cut_by_columns_and_bars_are_means():
    assert [cut("模型模型", width) for width in (8, 5, 0)] == ["模型模型", "模型", ""]
    assert cut("e\u0301e\u0301e\u0301", 2) == "e\u0301e\u0301" and cut("a\tb\x1b[2J\u2067\udcff", 80) == "a?b?[2J??"
    assert sparkline([1, 1], 9) == "▁▁" and sparkline([0, 0, 7, 7], 2) == sparkline([0, math.nan, 7], 9) == "▁█"
    assert sparkline([], 9) == sparkline([1], 0) == ""
    assert bar(0.5, 3) == "█▌" and bar(7, 2) == "██" and bar(-1, 2) == ""
    assert [duration(seconds) for seconds in (-1, 1.25, 59.6, 3599, 86_399, 90_000, math.inf)] == [
        "0.0 s", "1.2 s", "1 min 0 s", "59 min 59 s", "23 h 59 min", "1 d 1 h", "11574074 d 1 h",
    ]  # fmt: skip


def test_a_run_is_what_its_files_say_start_by_start(tmp_path):
    events(tmp_path, START)
    metrics(tmp_path, STEP | {"validation_loss": 4.5}, {"step": 101, "loss": 2, "run": "r1", "mfu": 0.4})
    metrics(
        tmp_path,
        {"step": 102, "run": "r1", "validation_wiki_loss": 4.2, "validation_code_loss": 3.1},
        {"step": 7, "run": "r2"},
    )
    reader = RunReader(tmp_path)
    run = reader.update()
    assert (run.step["step"], run.step["loss"], run.step["lr"], run.step["mfu"]) == (102, 2, 3e-5, 0.4)
    assert run.validation == {"validation wiki": 4.2, "validation code": 3.1} and run.validation_step == 102
    assert run.losses[:2] == [2.5, 2] and len(run.losses) == 3
    of_others = [{"event": kind, "run": "r2", "step": 9, "text": "slow"} for kind in ("checkpoint", "warning", "end")]
    events(tmp_path, *of_others, {"event": "end", "run": "r1", "start": "earlier", "status": "failed"})
    reader.update()
    assert (run.checkpoint, run.warning, run.end) == ({}, "", {})
    events(
        tmp_path, {"event": "warning", "run": "r1", "text": "slow"}, {"event": "end", "start": "a", "status": "stopped"}
    )
    assert reader.update().end["status"] == "stopped" and run.warning == "slow"
    events(tmp_path, START | {"start": "b"})
    reader.update()
    assert (run.starts, run.end, run.warning, run.step["step"]) == (2, {}, "", 102)
    events(tmp_path, START | {"run": "r2"})
    assert (reader.update().starts, reader.view.step) == (1, {})


def test_a_run_that_resumes_has_each_loss_once_and_of_a_long_file_the_end_is_read(tmp_path):
    events(tmp_path, START)
    metrics(tmp_path, *(STEP | {"step": at, "loss": at} for at in (1, 2, 3)))
    reader = RunReader(tmp_path)
    assert reader.update().losses == [1, 2, 3]
    append(tmp_path / "new", *(STEP | {"step": at, "loss": at} for at in (1, 2)))
    os.replace(tmp_path / "new", tmp_path / "metrics.jsonl")
    assert reader.update().losses == [1, 2]
    metrics(tmp_path, STEP | {"step": 3, "loss": 4}, '{"step": 4, "lo')
    assert reader.update().losses == [1, 2, 4]
    length = len(json.dumps(STEP)) + 1
    (tmp_path / "metrics.jsonl").unlink()
    metrics(tmp_path, *([STEP] * 5))
    for most, lines in ((length, 1), (2 * length - 1, 1), (2 * length, 2), (9 * length, 5)):
        reader = RunReader(tmp_path)
        reader.metrics.most_bytes = most
        assert len(reader.update().losses) == lines


def test_the_start_says_which_file_has_the_steps(tmp_path):
    append(tmp_path / "steps.jsonl", STEP | {"step": 9})
    run = view(tmp_path, STEP, start=START | {"metrics_file": "/elsewhere/by the run/steps.jsonl"})
    assert run.step["step"] == 9
    assert RunReader(tmp_path / "metrics.jsonl").update().step["step"] == 100
    events(tmp_path, START | {"metrics_file": ""})
    assert RunReader(tmp_path / "metrics.jsonl").update().step["step"] == 100


ODD = [None, "x", "", True, -1, 1e308, 10**400, math.inf, math.nan, [], {}, [None], ["\ud800"], {"a": 1}]


@pytest.mark.parametrize("seed", range(20))
def test_odd_values_end_no_view(tmp_path, seed):
    choose = random.Random(seed)
    odd = lambda fields: {key: choose.choice(ODD) if choose.random() < 0.3 else fields[key] for key in fields}  # noqa: E731
    events(tmp_path, "nonsense\n[1]\n{}\n", odd(START), odd(START | {"metrics_file": "x", "metrics_port": 0}))
    events(
        tmp_path,
        odd({"event": "checkpoint", "step": 1, "time": 2, "seconds": 3}),
        odd({"event": "warning", "text": "x"}),
    )
    metrics(tmp_path, *(odd(STEP | {"rank_seconds": [0.1, 0.2], "validation_loss": 1, "mfu": 0.5}) for _ in range(5)))
    assert shown(RunReader(tmp_path).update())


def test_the_runs_of_a_folder_are_listed(tmp_path):
    for name in ("a", "b", "old-1"):
        (tmp_path / name).mkdir()
        metrics(tmp_path / name, STEP)
    with pytest.raises(TopError, match=f"{tmp_path}/a, {tmp_path}/b\\."):
        RunReader(tmp_path)


def test_a_folder_without_a_run_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(TopError, match=str(path)):
            RunReader(path)


BEFORE = """# HELP mpzero_host_cpu_seconds_total Time of all cores together.
mpzero_host_cpu_seconds_total{node="a",mode="user"} 100
mpzero_host_cpu_seconds_total{node="a",mode="idle"} 300
mpzero_network_transmit_bytes_total{device="eth0"} 1000
mpzero_network_transmit_bytes_total{device="lo"} 0
no number
x{a="b c",d="e,\\"f"} 2.5e3
"""
NOW = """mpzero_host_cpu_seconds_total{node="a",mode="user"} 103
mpzero_host_cpu_seconds_total{node="a",mode="idle"} 301
mpzero_network_transmit_bytes_total{device="eth0"} 5000
mpzero_network_transmit_bytes_total{device="lo"} 9999
mpzero_host_memory_available_bytes{node="a"} 1024
mpzero_gpu_utilization_ratio{gpu="3",rank="3"} 0.97
mpzero_gpu_throttled{gpu="3",reason="sw_power_cap"} 1
mpzero_gpu_throttled{gpu="10",reason="hw_thermal_slowdown"} 1
mpzero_gpu_driver_up 1
"""


def test_a_node_is_what_it_did_between_two_scrapes():
    before, now = samples_of(BEFORE), samples_of(NOW)
    assert before[-1] == ("x", {"a": "b c", "d": 'e,\\"f'}, 2500)
    node = view_of("a", before, now, 2)
    assert (node.cpu, node.sent, node.received, node.memory_available) == (0.75, 2000, None, 1024)
    assert node.gpus == {3: {"utilization_ratio": 0.97}, 10: {"throttled": 1}}
    efa = 'mpzero_rdma_tx_bytes_total{device="efa0"} '
    assert view_of("a", samples_of(BEFORE + efa + "0"), samples_of(NOW + efa + "4e9"), 2).sent == 2e9
    # Without a scrape before there are no rates; a counter that begins anew has none.
    assert view_of("a", [], now, 0).cpu is None and view_of("a", now, before, 2).sent is None


@contextlib.contextmanager
def endpoint(status: int, page: str):
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def top(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-X", "utf8", str(REPOSITORY / "app/top.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)


OWN = 'mpzero_up{run_id="r1"} 1\nmpzero_gpu_utilization_ratio{gpu="0"} 0.5\n'


@pytest.mark.parametrize(
    ("status", "page", "said"),
    [
        (200, OWN, "127.0.0.1\n  GPU 0   50%\n"),
        (200, OWN.replace("r1", "r2"), ": the port serves run r2\n"),
        (200, "<html>", ": the port does not serve a run\n"),
        (404, OWN, ": HTTP status 404\n"),
    ],
)
def test_an_endpoint_is_shown_if_it_is_the_runs_own(tmp_path, status, page, said):
    with endpoint(status, page) as port:
        view(tmp_path, STEP, start=START | {"hosts": ["127.0.0.1"], "metrics_port": port})
        assert said in top(tmp_path, "--once").stdout


def test_this_hosts_endpoint_is_asked_at_its_address_and_too_many_hosts_are_counted(tmp_path):
    with endpoint(200, OWN) as port:
        for place, address in enumerate(("0.0.0.0", "127.0.0.1", "127.0.0.2", "::")):
            (tmp_path / str(place)).mkdir()
            start = START | {"hosts": [socket.gethostname()], "metrics_port": port, "metrics_address": address}
            view(tmp_path / str(place), STEP, start=start)
            assert ("GPU 0" in top(tmp_path / str(place)).stdout) == (place < 2), address
    view(tmp_path, STEP, start=START | {"hosts": [f"127.0.0.{i}" for i in range(1, 41)], "metrics_port": port})
    assert "\n8 more hosts: not queried\n" in top(tmp_path).stdout


def test_an_endpoint_that_hangs_holds_up_no_view_and_no_end(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        view(tmp_path, STEP, start=START | {"hosts": ["127.0.0.1"], "metrics_port": port})
        seen = top(tmp_path, "--once")
    assert seen.returncode == 0 and f"port {port}: " in seen.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "RUN|JOB"),
        (["a", "b"], "b"),
        (["a", "--twice"], "--twice"),
        *((["a", f"--interval={text}"], "--interval") for text in ("", "x", "0", "nan", "1e9")),
        (["/no/such\x1b/run"], r"/no/such\x1b/run"),
        (["99999999"], "'99999999'"),
        (["99999999_5"], "'99999999_5'"),
        (["99_5_5"], "99_5_5 has neither"),
    ],
)
def test_a_mistake_gets_one_sentence(words, said):
    done = top(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("mpzero: error: ") and said in done.stderr


def test_a_stdout_that_is_full_or_closed_is_no_traceback(tmp_path):
    view(tmp_path, STEP)
    command = [sys.executable, "-X", "utf8", REPOSITORY / "app/top.py", tmp_path]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 1 and done.stderr.startswith("mpzero: error: stdout") and done.stderr.count("\n") == 1
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=120, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_view_on_a_terminal_ends_with_the_run_by_a_signal_and_by_q(tmp_path):
    view(tmp_path, STEP)
    for ends_by in ("signal", "q", "run"):
        if ends_by == "run":
            events(tmp_path, {"event": "end", "run": "r1", "start": "a", "status": "finished"})
        main, terminal = pty.openpty()
        fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        command = [sys.executable, "-X", "utf8", REPOSITORY / "app/top.py", tmp_path, "--interval=3600"]
        modes = termios.tcgetattr(terminal)
        with subprocess.Popen(command, stdin=terminal, stdout=terminal) as process:
            text = b""
            while b"\033[J" not in text:
                text += os.read(main, 4096)
            if ends_by == "signal":
                process.send_signal(signal.SIGTERM)
            elif ends_by == "q":
                os.write(main, b"xq")
            assert process.wait(timeout=60) == 0
        assert termios.tcgetattr(terminal) == modes
        os.close(terminal)
        with contextlib.suppress(OSError):  # the other end is closed
            while True:
                text += os.read(main, 4096)
        os.close(main)
        assert b"tiny" in text and text.endswith(b"\033[?25h\r\n")
