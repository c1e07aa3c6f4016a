"""What a run writes reaches the programs that draw it, each step once, across restarts of the run and the follower."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from .conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "app"))
from run_files import json_lines
from run_files.values import object_of
from run_follow import sinks
from run_follow.following import Follower, FollowError, row_of
from run_follow.pump import Place, Pump

sys.path.pop(0)

RUN, OTHER = "00000000aaaaaaaa", "00000000bbbbbbbb"


def line(step: int, time: float, loss: float = 1.0, run: str = RUN) -> str:
    return json.dumps({"step": step, "loss": loss, "time": time, "run": run}) + "\n"


def row(text: str):
    fields = object_of(text)
    return None if fields is None else row_of(fields, text.encode())


def steps(rows) -> list[int]:
    return [row.step for row in rows]


def replace(path, text: str) -> None:
    other = path.with_suffix(".new")
    other.write_text(text)
    os.replace(other, path)


def test_a_line_counts_when_it_is_complete(tmp_path):
    path = tmp_path / "metrics.jsonl"
    follower = Follower(path)
    assert steps(follower.new_rows()) == []
    text = line(1, 10.0) + line(2, 11.0)
    path.write_text(text[:-5])
    assert steps(follower.new_rows()) == [1]
    assert steps(follower.new_rows()) == []
    with path.open("a") as file:
        file.write(text[-5:] + "no JSON\n[1]\n" + line(3, 12.0))
    assert steps(follower.new_rows()) == [2, 3]
    assert follower.damaged == 2 and "(3, 4)" in follower.damage()


def test_a_file_that_is_replaced_is_read_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, 10.0) + line(2, 11.0))
    follower = Follower(path)
    assert steps(follower.new_rows()) == [1, 2]
    replace(path, line(1, 10.0))
    assert steps(follower.new_rows()) == [1]
    path.write_text("")  # shorter, the same file
    assert steps(follower.new_rows()) == []


def test_lines_that_a_file_got_before_it_was_replaced_are_not_lost(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, 10.0))
    follower = Follower(path)
    assert steps(follower.new_rows()) == [1]
    with path.open("a") as file:
        file.write(line(2, 11.0) + line(3, 12.0))
    replace(path, line(1, 20.0, run=OTHER))
    assert [(row.step, row.run_id) for row in follower.new_rows()] == [(2, RUN), (3, RUN), (1, OTHER)]
    path.rename(tmp_path / "old")  # another one is waited for
    assert steps(follower.new_rows()) == []
    path.write_text(line(1, 30.0))
    assert [(row.step, row.run_id) for row in follower.new_rows()] == [(1, RUN)]


def test_places_are_of_a_run_and_a_target_and_nothing_is_written_through_what_others_made(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, 1.0) + line(2, 2.0) + line(1, 3.0, run=OTHER))
    for folder, target in (("a", "x"), ("b", "x"), ("b", "y")):
        sink = Recorder()
        sink.target = target
        Pump(Follower(path), sink, tmp_path / folder).pass_on()
        assert sink.calls[0] == ("begin", RUN, 1) and sink.calls[3:] == [("begin", OTHER, 1), ("step", 1, 3.0)]
    for number, make in enumerate((os.mkfifo, lambda path: path.symlink_to("/dev/zero"))):
        make(path := tmp_path / f"passed-on.{number}")
        with pytest.raises(FollowError, match="passed-on"):
            Place(path)
    place = Place(path := tmp_path / "passed-on.x")
    place.passed(0, row(line(1, 1.0)))
    path.symlink_to(tmp_path / "other")  # it comes later
    with pytest.raises(FollowError, match="passed-on"):
        place.save()
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(tmp_path, make):
    make(tmp_path / "metrics.jsonl")
    with pytest.raises(FollowError, match="metrics"):
        steps(Follower(tmp_path / "metrics.jsonl").new_rows())


@pytest.mark.parametrize("unfinished", ["", '{"step": 3, '])
def test_a_file_that_is_cut_and_grows_longer_than_before_is_read_again(tmp_path, unfinished):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, 10.0) + line(2, 11.0) + unfinished)
    follower = Follower(path)
    assert steps(follower.new_rows()) == [1, 2]
    path.write_text(line(1, 10.0) + line(2, 20.0) + line(3, 30.0))  # the same inode
    assert steps(follower.new_rows()) == [1, 2, 3]


def own(fields: str):
    return row(f'{{"run": "{RUN}", {fields}}}')


def test_values_that_are_no_numbers_are_left_out():
    read = own('"step": 3, "loss": NaN, "lr": null, "name": "x", "ok": true, "mfu": 0.5, "time": 7')
    assert (read.step, read.time, read.run_id, read.values) == (3, 7.0, RUN, {"mfu": 0.5})
    assert own('"step": "3"') is None and own('"step": -1') is None and row("[" * 100_000) is None
    many, too_many = "9" * 400, "9" * 5000
    assert own(f'"step": {many}') is None and own(f'"step": 1, "loss": {too_many}') is None
    for time in (many, "1e300", "-1", "NaN", '"now"', "null", "true", "[]", "1e400", "253402300800"):
        read = own(f'"step": 3, "loss": 1, "mfu": {many}, "time": {time}')
        assert (read.step, read.time, read.values) == (3, 0.0, {"loss": 1.0})


def test_text_that_utf8_does_not_have_ends_no_follower(tmp_path):
    pytest.importorskip("tensorboard")
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/run \xff"))
    folder.mkdir()
    text = line(1, 1.0).replace('"loss"', r'"rank \ud800": 2.0, "loss"')
    (folder / "metrics.jsonl").write_text(text + line(2, 2.0))
    process = subprocess.run(command(folder, "--once"), capture_output=True, timeout=120, check=False)
    assert (process.returncode, process.stderr) == (0, b"")
    assert process.stdout.startswith(b"follow.py: forwarding " + bytes(folder) + b"/metrics.jsonl")
    assert row(text).values == {"rank ?": 2.0, "loss": 1.0}
    # TensorBoard itself reads no such folder.
    assert [step for step, *_ in shown(folder.rename(tmp_path / "run"))] == [1, 2]


@pytest.mark.parametrize("run", ["../outside", "", "x", RUN + "0", RUN.upper(), 16])
def test_an_id_that_is_none_is_refused(tmp_path, run):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.jsonl").write_text(line(1, 1.0) + line(2, 1.0, run=run))
    process = program(tmp_path / "run", "--once")
    assert process.returncode == 2
    assert f"{tmp_path}/run/metrics.jsonl line 2 " in process.stderr and process.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class Recorder:
    """A sink in memory."""

    target = "a list"
    most_unsaved = 1000

    def __init__(self):
        self.calls: list[tuple] = []

    def begin(self, run_id, first_step):
        self.calls.append(("begin", run_id, first_step))

    def write(self, row):
        self.calls.append(("step", row.step, row.time))

    def rewind(self, step):
        self.calls.append(("rewind", step))

    def flush(self): ...
    def close(self): ...

    @property
    def steps(self) -> list[tuple[int, float]]:
        return [call[1:] for call in self.calls if call[0] == "step"]


def test_each_step_is_passed_on_once_whatever_the_run_and_the_follower_do(tmp_path):
    """Against a list of every step that the run has made. The clock is set back and forth."""
    for seed in range(30):
        choose = random.Random(seed)
        path, sink = tmp_path / f"{seed}.jsonl", Recorder()
        kept, made = [], []

        def new_pump(path=path, sink=sink, seed=seed) -> Pump:
            return Pump(Follower(path), sink, tmp_path / f"{seed}")

        pump = new_pump()
        for _ in range(60):
            action = choose.choice(("step", "step", "step", "resume", "follow", "follower restarts"))
            if action == "step":
                step = kept[-1][0] + 1 if kept else 1
                kept.append((step, choose.random() * 100))
                made.append(kept[-1])
                with path.open("a") as file:
                    file.write(line(*kept[-1]))
            elif action == "resume" and kept:
                # The follower has seen what was there, as it does every two seconds.
                pump.pass_on()
                kept = kept[: choose.randrange(len(kept)) + 1]
                choose.choice((replace, Path.write_text))(path, "".join(line(*entry) for entry in kept))
            elif action == "follow":
                pump.pass_on()
            else:
                pump.save()
                pump = new_pump()
        pump.pass_on()
        assert sink.steps == made, seed


def test_a_step_that_a_crash_has_not_noted_is_passed_on_again(tmp_path):
    path, sink = tmp_path / "metrics.jsonl", Recorder()
    path.write_text(line(1, 1.0) + line(2, 2.0))
    Pump(Follower(path), sink, tmp_path).pass_on()
    (place,) = (tmp_path / RUN).iterdir()
    place.write_bytes(place.read_bytes()[:-3])
    Pump(Follower(path), sink, tmp_path).pass_on()
    assert sink.calls[-2:] == [("begin", RUN, 2), ("step", 2, 2.0)]
    place.write_bytes(b"damaged!" * 9)
    Pump(Follower(path), sink, tmp_path).pass_on()
    assert sink.calls[-3:] == [("begin", RUN, 1), ("step", 1, 1.0), ("step", 2, 2.0)]
    assert len(place.read_bytes()) == 16


WANDB = """
import os, signal, types

def log(values):
    with open(os.environ["LOGGED"], "a") as file:
        print(values["step"], file=file)
    if values["step"] == 7 and os.environ["BREAKS"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if values["step"] == 7 and os.environ["BREAKS"] == "no answer":
        raise RuntimeError("no answer")

def finish():
    if os.environ["BREAKS"] == "no answer":
        raise RuntimeError("no end either")

def init(**_):
    return types.SimpleNamespace(define_metric=lambda *_, **__: None, log=log, finish=finish)
"""


@pytest.mark.parametrize("breaks", ["killed", "no answer"])
def test_a_sink_that_breaks_within_a_pass_gets_no_step_twice_but_the_one_that_broke_it(tmp_path, breaks):
    (tmp_path / "metrics.jsonl").write_text("".join(line(step, float(step)) for step in range(1, 11)))
    (tmp_path / "wandb.py").write_text(WANDB)
    environment = {"PYTHONPATH": str(tmp_path), "LOGGED": str(tmp_path / "logged")}
    first = program(tmp_path, "--sink", "wandb", "--once", **environment, BREAKS=breaks)
    assert first.returncode == (-signal.SIGKILL if breaks == "killed" else 1)
    assert program(tmp_path, "--sink", "wandb", "--once", **environment, BREAKS="").returncode == 0
    assert [int(step) for step in (tmp_path / "logged").read_text().split()] == [*range(1, 8), *range(7, 11)]


def test_what_was_passed_on_before_an_error_is_not_passed_on_again(tmp_path):
    pytest.importorskip("tensorboard")
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, 1.0) + line(2, 2.0) + line(3, 3.0, run="no id"))
    assert program(tmp_path, "--once").returncode == 2
    path.write_text(line(1, 1.0) + line(2, 2.0) + line(3, 3.0))
    process = program(tmp_path, "--once")
    assert process.stdout.endswith("follow.py: 1 step was forwarded.\n")
    assert [step for step, *_ in shown(tmp_path)] == [1, 2, 3]


def test_a_long_pass_is_saved_as_often_as_the_sink_wants(tmp_path):
    path, sink = tmp_path / "metrics.jsonl", Recorder()
    path.write_text("".join(line(step, float(step)) for step in range(1, 11)))
    sink.most_unsaved = 4
    saved = []
    sink.flush = lambda: saved.append(len(sink.steps))
    Pump(Follower(path), sink, tmp_path).pass_on()
    assert saved == [4, 8, 10]


def command(*arguments) -> list[str]:
    return [sys.executable, str(REPOSITORY / "app/follow.py"), *map(str, arguments)]


def program(*arguments, **environment) -> subprocess.CompletedProcess:
    environment = {**os.environ, **environment}
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, env=environment)


def started(*arguments, **options) -> subprocess.Popen:
    return subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_a_run_that_is_not_there_is_refused(tmp_path):
    process = program(tmp_path / "checkpont")
    assert process.returncode == 2 and process.stdout == ""
    assert f"{tmp_path}/checkpont/metrics.jsonl" in process.stderr and process.stderr.count("\n") == 1
    assert "--wait" in program(tmp_path / "x", "--once", "--wait").stderr


def test_it_waits_for_a_run_and_says_so_once(tmp_path):
    pytest.importorskip("tensorboard")
    run = tmp_path / "later"
    process = started(run, "--wait")
    for word in ("TensorBoard", "waiting"):
        said = process.stdout.readline()
        assert f"{run}/metrics.jsonl" in said and word in said
    run.mkdir()
    (run / "metrics.jsonl").write_text(line(1, 1.0))
    assert RUN in process.stdout.readline()
    # What is there when the signal comes is passed on.
    with (run / "metrics.jsonl").open("a") as file:
        file.write(line(2, 2.0) + "half a line")
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (0, "follow.py: 2 steps were forwarded.\n", "")
    assert [step for step, *_ in shown(run)] == [1, 2]


def test_it_ends_with_the_process_that_it_is_started_for(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "metrics.jsonl").write_text(line(1, 1.0))
    training = subprocess.Popen(["sleep", "300"])

    def as_in_the_background() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    process = started(tmp_path, "--pid", training.pid, preexec_fn=as_in_the_background)
    for _ in range(2):
        process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(line(2, 2.0))
    training.kill()
    training.wait()
    assert process.communicate(timeout=60) == ("follow.py: 2 steps were forwarded.\n", "")
    assert [step for step, *_ in shown(tmp_path)] == [1, 2]


def test_a_signal_that_is_repeated_until_it_has_ended_does_not_kill_it(tmp_path):
    """As scripts/follow.sh repeats it; Python gives up its handlers before it ends."""
    pytest.importorskip("tensorboard")
    (tmp_path / "metrics.jsonl").write_text(line(1, 1.0))
    process = started(tmp_path)
    for _ in range(2):
        process.stdout.readline()
    while process.poll() is None:
        process.send_signal(signal.SIGUSR2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.001)
    assert (process.returncode, process.stdout.read()) == (0, "follow.py: 1 step was forwarded.\n")
    process.stdout.close()
    process.stderr.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "metrics.jsonl").write_text(line(1, 1.0))
    (tmp_path / "tensorboard").write_text("a file")
    process = program(tmp_path, "--once")
    assert process.returncode == 2
    assert process.stderr.startswith(f"follow.py: {tmp_path}/tensorboard/{RUN}") and process.stderr.count("\n") == 1
    assert "Not a directory" in process.stderr and "--logdir" in process.stderr
    assert program(tmp_path, "--once", "--logdir", tmp_path / "elsewhere").returncode == 0


# What a crash of the machine leaves, and what the trainer writes between the steps.
DAMAGE = [
    "\0" * 5000 + "\n",
    "\x07\xff\x1b]0;\n",
    '{"step": 5, "lo\n',
    '{"step": 5, "lo\0\0\0: 1}\n',
    "[" * 100_000 + "\n",
    "\n",
]
OTHER_RECORDS = ['{"event": "gap", "lines": 7, "time": 1e300}\n', '{"event": "gap", "step": 3, "run": 1}\n', "{}\n"]


def test_lines_that_a_crash_has_damaged_are_left_out_and_counted(tmp_path):
    pytest.importorskip("tensorboard")
    lines = [line(1, 1.0), *OTHER_RECORDS, *DAMAGE, line(2, 2.0), DAMAGE[0], line(3, 3.0), line(4, 1.0)[:9]]
    (tmp_path / "metrics.jsonl").write_bytes("".join(lines).encode("latin-1"))
    process = program(tmp_path, "--once")
    assert process.returncode == 0
    assert process.stderr.count("\n") == 1 and "7 damaged lines (5, 6, 7, 8, 9, 10, 12)" in process.stderr
    assert [step for step, _, _ in shown(tmp_path)] == [1, 2, 3]


def test_a_line_without_an_end_is_not_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "MOST_LINE_BYTES", 100)
    (tmp_path / "metrics.jsonl").write_text(line(1, 1.0) + "x" * 1050 + "\n" + line(2, 2.0))
    follower = Follower(tmp_path / "metrics.jsonl")
    assert steps(follower.new_rows()) == [1, 2]
    assert follower.damaged == 1 and "(2)" in follower.damage()


def shown(folder: Path) -> list[tuple[int, float, float]]:
    """What TensorBoard shows of the run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (run,) = (folder / "tensorboard").glob(f"*-{RUN}")
    events = EventAccumulator(str(run))
    events.Reload()
    return [(event.step, event.value, event.wall_time) for event in events.Scalars("loss/train")]


def test_tensorboard_shows_the_run_as_it_is_now(tmp_path):
    pytest.importorskip("tensorboard")
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step, 10.0 + step, 4.0) for step in (1, 2, 3, 4)))
    first = program(tmp_path, "--once")
    assert first.returncode == 0, first.stderr
    assert shown(tmp_path) == [(step, 4.0, 10.0 + step) for step in (1, 2, 3, 4)]
    # The run resumes after step 2, on a node whose clock is late.
    replace(path, line(1, 11.0, 4.0) + line(2, 12.0, 4.0) + line(3, 5.0, 3.0))
    assert program(path, "--once").returncode == 0
    assert shown(tmp_path) == [(1, 4.0, 11.0), (2, 4.0, 12.0), (3, 3.0, 5.0)]
    assert program(path, "--once").returncode == 0
    assert len(shown(tmp_path)) == 3


def test_tensorboard_reads_the_files_in_their_order_though_the_clock_goes_back(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    for now, loss in ((2_000_000_000, 4.0), (1_000_000_000, 3.0), (1_000_000_000, 2.0)):
        monkeypatch.setattr(sinks.time, "time", lambda now=now: float(now))
        sink = sinks.TensorBoard(tmp_path / "tensorboard", "p")
        sink.begin(RUN, 1)
        sink.write(row(line(1, now, loss)))
        sink.close()
        assert [value for _, value, _ in shown(tmp_path)] == [loss]


def test_a_package_that_is_missing_is_named_with_a_command_that_works_here(tmp_path):
    for package in ("wandb", "mlflow", "tensorboard"):
        (tmp_path / "packages" / package).mkdir(parents=True)
        (tmp_path / "packages" / package / "__init__.py").write_text("raise ImportError\n")
    uv, own, python = tmp_path / "home/.local/bin/uv", REPOSITORY / ".venv-uv/bin/uv", sys.executable
    uv.parent.mkdir(parents=True)

    def command_of(sink: str, path: str) -> str:
        environment = {"PYTHONPATH": str(tmp_path / "packages"), "HOME": str(tmp_path / "home"), "PATH": path}
        process = program(tmp_path, "--sink", sink, "--check", **environment)
        assert process.returncode == 2 and process.stderr.startswith(f"follow.py: {sink} ")
        return process.stderr.split("with '")[1].split("'")[0]

    with_pip = f"{python} -m ensurepip && {python} -m pip install wandb"
    assert command_of("wandb", "/nowhere") == (
        f"{own} pip install --python {python} wandb" if own.exists() else with_pip
    )
    uv.write_text("")
    uv.chmod(0o755)
    assert command_of("mlflow", "/nowhere") == f"{uv} pip install --python {python} mlflow"
    assert command_of("tensorboard", str(uv.parent)) == f"uv pip install --python {python} tensorboard"


def test_a_sink_that_is_installed_is_not_refused(tmp_path):
    pytest.importorskip("tensorboard")
    process = program(tmp_path / "no run yet", "--check")
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_what_breaks_in_a_sink_is_one_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(line(1, 1.0))
    (tmp_path / "wandb.py").write_text("def init(**_): raise RuntimeError('no\\n login')\n")
    process = program(tmp_path, "--sink", "wandb", "--once", PYTHONPATH=str(tmp_path))
    assert process.returncode == 1
    assert process.stderr == "follow.py: wandb: RuntimeError: no login\n"


class Calls(list):
    """A stand-in for a package: records each call."""

    def record(self, name: str, answer=None):
        return lambda *positional, **named: self.append((name, positional, named)) or answer


def metrics_of_start(folder) -> Path:
    folder.mkdir()
    settings = [["learning rate", "2e-05", "flag: --learning_rate"]]
    starts = [{"event": "start", "run": run, "model_type": "tiny", "settings": settings} for run in (RUN, "other")]
    (folder / "events.jsonl").write_text("".join(json.dumps(start) + "\n" for start in starts))
    return folder / "metrics.jsonl"


def test_wandb_gets_one_run_with_the_runs_id(tmp_path, monkeypatch):
    calls = Calls()
    run = types.SimpleNamespace(
        define_metric=calls.record("define"), log=calls.record("log"), finish=calls.record("finish")
    )
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=calls.record("init", run)))
    sink = sinks.WeightsAndBiases(tmp_path / "wandb", project="p")
    sink.metrics = metrics_of_start(tmp_path / "a run")
    assert calls == []
    sink.begin(RUN, 1)
    sink.write(row(line(7, 9.0, 2.5)))
    sink.close()
    [init] = [named for name, _, named in calls if name == "init"]
    assert init["name"] == "tiny a run" and init["config"] == {"model_type": "tiny", "learning rate": "2e-05"}
    given = {"project": "p", "id": RUN, "resume": "allow", "dir": str(tmp_path / "wandb")}
    assert {name: init[name] for name in given} == given
    assert ("define", ("*",), {"step_metric": "step"}) in calls
    assert calls[-2:] == [("log", ({"loss/train": 2.5, "step": 7},), {}), ("finish", (), {})]


@pytest.mark.parametrize("known", [False, True])
def test_mlflow_finds_the_run_by_its_tag(tmp_path, monkeypatch, known):
    calls = Calls()
    data = types.SimpleNamespace(params={"model_type": "tiny"})
    run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="m1"), data=data)
    client = types.SimpleNamespace(
        get_experiment_by_name=calls.record("get", types.SimpleNamespace(experiment_id="e") if known else None),
        create_experiment=calls.record("create_experiment", "e"),
        search_runs=calls.record("search", [run] if known else []),
        create_run=calls.record("create_run", run),
        update_run=calls.record("update_run"),
        log_batch=calls.record("log"),
        set_terminated=calls.record("end"),
    )
    package = types.SimpleNamespace(
        MlflowClient=lambda: client,
        entities=types.SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values),
        get_tracking_uri=lambda: "http://a",
    )
    monkeypatch.setitem(sys.modules, "mlflow", package)
    sink = sinks.MLflow(tmp_path, project="p")
    sink.metrics = metrics_of_start(tmp_path / "a run")
    assert calls == [] and sink.target == "the MLflow experiment p at http://a"
    sink.begin(RUN, 1)
    sink.write(row(line(7, 9.0, 2.5)))
    sink.close()
    names = [name for name, *_ in calls]
    assert ("create_run" in names, "update_run" in names) == (not known, known)
    params = [("learning rate", "2e-05")] if known else [("model_type", "tiny"), ("learning rate", "2e-05")]
    assert ("log", ("m1",), {"params": params}) in calls
    assert known or next(named for name, _, named in calls if name == "create_run")["run_name"] == "tiny a run"
    assert calls[-2:] == [("log", ("m1",), {"metrics": [("loss/train", 2.5, 9000, 7)]}), ("end", ("m1",), {})]


def test_a_folder_of_runs_is_refused_with_the_name_of_one(tmp_path):
    for name in ("lr2", "lr1"):
        (tmp_path / "sweep" / name).mkdir(parents=True)
        (tmp_path / "sweep" / name / "metrics.jsonl").write_text(line(1, 10.0))
    result = program(tmp_path / "sweep", "--once")
    assert result.returncode == 2 and str(tmp_path / "sweep" / "lr1") in result.stderr


def test_tensorboard_names_a_run_by_its_folder_and_keeps_the_folder_of_earlier_steps(tmp_path):
    pytest.importorskip("tensorboard")

    def folders(run: Path) -> list[str]:
        return sorted({file.parent.name for file in (run / "tensorboard").glob("*/events.out.tfevents.*")})

    run = tmp_path / "lr 1e-3"
    run.mkdir()
    (run / "metrics.jsonl").write_text(line(1, 1.0))
    assert program(run, "--once").returncode == 0
    assert folders(run) == [f"lr 1e-3-{RUN}"]
    run = run.rename(tmp_path / "best")
    (run / "metrics.jsonl").write_text(line(1, 1.0) + line(2, 2.0))
    assert program(run, "--once").returncode == 0
    assert folders(run) == [f"lr 1e-3-{RUN}"] and [step for step, *_ in shown(run)] == [1, 2]
    # Versions before named the folder by the id alone.
    (run / f"tensorboard/lr 1e-3-{RUN}").rename(run / f"tensorboard/{RUN}-moved")
    for file in (run / f"tensorboard/{RUN}-moved").iterdir():
        file.rename(run / f"tensorboard/{RUN}/{file.name}")
    (run / f"tensorboard/{RUN}-moved").rmdir()
    (run / "metrics.jsonl").write_text(line(1, 1.0) + line(2, 2.0) + line(3, 3.0))
    assert program(run, "--once").returncode == 0
    assert folders(run) == [RUN]


def test_the_runs_of_a_folder_are_listed(tmp_path):
    pytest.importorskip("tensorboard")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text(line(1, 1.0))
    process = program(tmp_path, "--once")
    assert process.returncode == 2 and f"{tmp_path}/a, {tmp_path}/b" in process.stderr
