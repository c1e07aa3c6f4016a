"""Signals to train-singlenode.sh, and two of it at once."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

APP = Path(__file__).resolve().parents[2] / "app"

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def running(checkout) -> list[int]:
    path = checkout.record / "mpzero.pids"
    pids = [int(line) for line in path.read_text().split()] if path.exists() else []
    return [pid for pid in pids if is_alive(pid)]


def runs_child(pid: int, name: str) -> bool:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any(Path(f"/proc/{child}/comm").read_text().strip() == name for child in children)


def wait_until(condition, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def start(checkout, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        [checkout.root / "train-singlenode.sh"],
        cwd=checkout.root,
        env=checkout.environment({"NPROC": "2", **variables}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(checkout, process: subprocess.Popen) -> str:
    """The script's output; fails if a rank outlives it. mpirun may end slightly before the processes that it kills."""
    try:
        output, _ = process.communicate(timeout=60)
        wait_until(lambda: running(checkout) == [])
    finally:
        for pid in running(checkout):
            os.kill(pid, signal.SIGKILL)
        process.kill()
    return output


SIGNALS = [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGUSR1, False)]


@pytest.mark.parametrize(("number", "to_group"), SIGNALS)
def test_an_interruption_ends_ranks_that_cannot_save(checkout, number, to_group):
    process = start(checkout, FAKE_SLEEP="300")
    wait_until(lambda: len(running(checkout)) == 2)
    (os.killpg if to_group else os.kill)(process.pid, number)
    output = finish(checkout, process)
    assert process.returncode == 75
    assert "Interrupted; no checkpoint exists yet" in output


def test_the_start_file_is_named_before_the_first_line(checkout):
    """Ctrl-C also reaches command substitutions, and would end the script through `set -e`."""
    gate, asked = checkout.record / "gate", checkout.record / "asked"
    wait = f"if [[ ${{!#}} == */mpi_start.* ]]; then : >{asked}; until [[ -e {gate} ]]; do sleep 0.05; done; fi"
    checkout.program(checkout.bin / "realpath", f'#!/bin/bash\n{wait}\nexec /usr/bin/realpath "$@"\n')
    process = start(checkout)
    wait_until(asked.exists)
    before = os.read(process.stdout.fileno(), 1 << 20)
    gate.touch()
    assert b"Training" not in before and "Training" in finish(checkout, process)


@pytest.mark.parametrize(("handler", "waits"), [("", True), ("trap 'exit 130' USR1", True), ("", False)])
def test_an_interruption_between_the_first_line_and_the_ranks_starts_no_rank(checkout, handler, waits):
    asked = checkout.record / "asked"
    checkout.program(checkout.bin / "setsid", f"#!/bin/bash\n{handler}\n: >{asked}\nwhile sleep 0.05; do :; done\n")
    process = start(checkout, FAKE_SLEEP="300")
    assert "log:" in next(line for line in process.stdout if "Training" in line)
    if waits:
        wait_until(asked.exists)
    os.killpg(process.pid, signal.SIGINT)
    output = finish(checkout, process)
    assert process.returncode == 75
    assert "Interrupted; no checkpoint exists yet" in output
    assert not (checkout.record / "mpzero.pids").exists()


def ready(checkout) -> bool:
    return len(list(checkout.record.glob("ready.*"))) == 2


@pytest.mark.parametrize(("number", "to_group"), SIGNALS)
def test_an_interrupted_run_saves_and_says_where_it_resumes(checkout, number, to_group):
    process = start(checkout, FAKE_SAVES="at_once")
    wait_until(lambda: ready(checkout))
    (os.killpg if to_group else os.kill)(process.pid, number)
    output = finish(checkout, process)
    assert process.returncode == 75
    assert "resumes from checkpoints/first_run/qwen3_tiny-2steps" in output
    assert "Loss plot" not in output


def test_a_second_interruption_ends_a_run_that_is_still_saving(checkout):
    process = start(checkout, FAKE_SAVES="slowly")
    wait_until(lambda: ready(checkout))
    os.killpg(process.pid, signal.SIGINT)
    assert "interrupt again to stop immediately" in next(line for line in process.stdout if "Stopping" in line)
    assert len(running(checkout)) == 2
    os.killpg(process.pid, signal.SIGINT)
    output = finish(checkout, process)
    assert process.returncode == 130
    assert "Interrupted before a checkpoint was saved; no checkpoint exists yet" in output


def test_the_two_hangups_of_a_closed_terminal_are_one(checkout):
    """The shell sends one and the kernel another, which may arrive while the script handles the first."""
    process = start(checkout, FAKE_SAVES="then_waits")
    wait_until(lambda: ready(checkout))
    for _ in range(50):
        os.kill(process.pid, signal.SIGHUP)
        time.sleep(0.001)
    assert "interrupt again to stop immediately" in next(line for line in process.stdout if "Stopping" in line)
    wait_until(lambda: (checkout.root / "checkpoints/first_run/latest").exists())
    assert len(running(checkout)) == 2
    os.killpg(process.pid, signal.SIGINT)
    finish(checkout, process)


def test_a_second_interruption_of_a_run_that_has_saved_is_a_stop(checkout):
    """The ranks save at the first one, and end by the second."""
    process = start(checkout, FAKE_SAVES="then_waits")
    wait_until(lambda: ready(checkout))
    os.killpg(process.pid, signal.SIGINT)
    assert "interrupt again to stop immediately" in next(line for line in process.stdout if "Stopping" in line)
    wait_until(lambda: (checkout.root / "checkpoints/first_run/latest").exists())
    os.killpg(process.pid, signal.SIGINT)
    output = finish(checkout, process)
    assert process.returncode == 75, output
    assert "Interrupted; the same command resumes from checkpoints/first_run/qwen3_tiny-2steps." in output


@pytest.mark.parametrize("saved", [False, True])
def test_a_rank_that_is_killed_is_a_failure_and_no_interruption(checkout, saved):
    if saved:
        (checkout.root / "checkpoints/first_run").mkdir(parents=True)
        (checkout.root / "checkpoints/first_run/latest").write_text("qwen3_tiny-2steps\n")
    process = start(checkout, FAKE_SLEEP="300")
    wait_until(lambda: len(running(checkout)) == 2)
    os.kill(running(checkout)[1], signal.SIGKILL)
    output = finish(checkout, process)
    assert process.returncode == 1, output
    remains = "the same command resumes from" if saved else "no checkpoint exists yet, so the same command starts over"
    assert "SIGKILL" in output and "dmesg" in output and f"; {remains}" in output
    assert "Interrupted" not in output


def test_a_second_start_waits_for_the_build_of_the_first(checkout):
    lock = checkout.root / "logs/setup.lock"
    lock.write_text("process 7 on node9\n")
    with open(lock, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = start(checkout)
        line = next(line for line in process.stdout if "Waiting" in line)
        assert "process 7 on node9" in line and "logs/setup.lock" in line
        assert checkout.calls() == ""
    finish(checkout, process)
    assert process.returncode == 0
    assert checkout.calls().startswith("ninja ")


def test_a_second_start_waits_for_the_data_of_the_first(checkout):
    folder = checkout.root / "data/tiny_corpus-bytes"
    folder.mkdir(parents=True)
    with open(folder / "prepare.lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = start(checkout)
        assert "prepare.lock" in next(line for line in process.stdout if "Waiting" in line)
        assert checkout.prepared() == []
    finish(checkout, process)
    assert process.returncode == 0
    assert checkout.prepared() != []


def test_an_interrupted_preparation_leaves_no_folders(checkout):
    asked = checkout.record / "asked"
    checkout.program(checkout.root / ".venv/bin/python", f"#!/bin/bash\n: >{asked}\nexec sleep 300\n")
    process = start(checkout)
    wait_until(asked.exists)
    assert (checkout.root / "checkpoints/first_run").is_dir()
    os.killpg(process.pid, signal.SIGINT)
    finish(checkout, process)
    assert process.returncode == -signal.SIGINT
    assert not (checkout.root / "checkpoints").exists() and not (checkout.root / "data").exists()


def test_an_interrupted_wait_for_the_data_of_another_keeps_its_lock(checkout):
    lock = checkout.root / "data/tiny_corpus-bytes/prepare.lock"
    lock.parent.mkdir(parents=True)
    with open(lock, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = start(checkout)
        # A SIGINT between bash's fork and exec is lost in the child, for which bash then waits.
        wait_until(lambda: runs_child(process.pid, "flock"))
        os.killpg(process.pid, signal.SIGINT)
        finish(checkout, process)
        assert lock.exists()


def test_a_start_that_has_waited_for_a_lock_that_was_removed_locks_the_next_file(checkout):
    lock = checkout.root / "data/tiny_corpus-bytes/prepare.lock"
    lock.parent.mkdir(parents=True)
    with open(lock, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = start(checkout)
        next(line for line in process.stdout if "Waiting" in line)
        shutil.rmtree(lock.parent)
    finish(checkout, process)
    assert process.returncode == 0
    assert lock.read_text().startswith("process ")


@pytest.mark.parametrize("program", ["prepare_data.py", "report.py"])
def test_an_interrupted_import_has_no_traceback(tmp_path, program):
    (tmp_path / "numpy.py").write_text("raise KeyboardInterrupt")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run([sys.executable, APP / program, "-h"], env=environment, capture_output=True, text=True)
    assert result.returncode == -signal.SIGINT
    assert result.stderr == f"{program}: interrupted.\n"


def test_a_python_without_the_packages_names_the_environment(tmp_path):
    (tmp_path / "plotly.py").write_text("raise ModuleNotFoundError(name='plotly')")
    code = f"import runpy, sys; sys.prefix = '/usr'; runpy.run_path('{APP}/report.py', run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{APP}"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert "plotly" in result.stderr and ".venv/bin/python" in result.stderr and result.stderr.count("\n") == 1
