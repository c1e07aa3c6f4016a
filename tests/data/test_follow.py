"""What a run writes reaches the programs that draw it, each step once, across restarts of the run and the follower."""

import json
import os
import random
import subprocess
import sys
import types

import pytest

from .conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "app"))
from run_follow import sinks
from run_follow.following import Follower, FollowError, Place, row_of

sys.path.pop(0)

RUN = "00000000aaaaaaaa"


def line(step: int, time: float, loss: float = 1.0, run: str = RUN) -> str:
    return json.dumps({"step": step, "loss": loss, "time": time, "run": run}) + "\n"


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


def test_a_file_that_is_replaced_is_read_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, 10.0) + line(2, 11.0))
    follower = Follower(path)
    assert steps(follower.new_rows()) == [1, 2]
    replace(path, line(1, 10.0))
    assert steps(follower.new_rows()) == [1]
    path.write_text("")  # shorter, the same file
    assert steps(follower.new_rows()) == []


def test_values_that_are_no_numbers_are_left_out():
    row = row_of('{"step": 3, "loss": NaN, "lr": null, "name": "x", "ok": true, "mfu": 0.5, "time": 7, "run": "r"}')
    assert (row.step, row.time, row.run_id, row.values) == (3, 7.0, "r", {"mfu": 0.5})
    assert row_of('{"step": "3"}') is None and row_of("[" * 100_000) is None


def test_each_step_is_passed_on_once_whatever_the_run_and_the_follower_do(tmp_path):
    """Against a list of every step that the run has made."""
    for seed in range(30):
        choose = random.Random(seed)
        path, place_path = tmp_path / f"{seed}.jsonl", tmp_path / f"{seed}.place"
        kept, made, passed, time = [], [], [], 0.0
        follower, place = Follower(path), Place(place_path)
        for _ in range(60):
            action = choose.choice(("step", "step", "step", "resume", "follow", "follower restarts"))
            if action == "step":
                time += 1
                step = kept[-1][0] + 1 if kept else 1
                kept.append((step, time))
                made.append((step, time))
                with path.open("a") as file:
                    file.write(line(step, time))
            elif action == "resume" and kept:
                # The follower has seen what was there, as it does every two seconds.
                passed += follow(follower, place)
                kept = kept[: choose.randrange(len(kept)) + 1]
                replace(path, "".join(line(*entry) for entry in kept))
            elif action == "follow":
                passed += follow(follower, place)
            else:
                place.save()
                follower, place = Follower(path), Place(place_path)
        passed += follow(follower, place)
        assert passed == made, seed


def follow(follower: Follower, place: Place) -> list[tuple[int, float]]:
    rows = []
    for row in follower.new_rows():
        if place.is_new(row):
            rows.append((row.step, row.time))
            place.passed(row)
    return rows


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": 1}', '{"run": "r", "step": "x", "time": 1}'])
def test_a_damaged_place_means_the_beginning(tmp_path, text):
    (tmp_path / "place").write_text(text)
    assert Place(tmp_path / "place").step == 0


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    place = Place(tmp_path / "none/place")
    place.passed(row_of(line(1, 1.0)))
    with pytest.raises(FollowError, match="none/place cannot be written"):
        place.save()


def program(*arguments, **environment) -> subprocess.CompletedProcess:
    command = [sys.executable, str(REPOSITORY / "app/follow.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def test_tensorboard_shows_the_run_as_it_is_now(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def shown() -> list[tuple[int, float, float]]:
        events = accumulator.EventAccumulator(str(tmp_path / "tensorboard" / RUN))
        events.Reload()
        return [(event.step, event.value, event.wall_time) for event in events.Scalars("loss/train")]

    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step, 10.0 + step, 4.0) for step in (1, 2, 3, 4)))
    first = program(tmp_path, "--once")
    assert first.returncode == 0, first.stderr
    assert shown() == [(step, 4.0, 10.0 + step) for step in (1, 2, 3, 4)]
    # The run resumes after step 2.
    replace(path, line(1, 11.0, 4.0) + line(2, 12.0, 4.0) + line(3, 20.0, 3.0))
    assert program(path, "--once").returncode == 0
    assert shown() == [(1, 4.0, 11.0), (2, 4.0, 12.0), (3, 3.0, 20.0)]
    assert program(path, "--once").returncode == 0
    assert len(shown()) == 3


@pytest.mark.parametrize("sink", ["wandb", "mlflow", "tensorboard"])
def test_a_package_that_is_missing_is_named(tmp_path, sink):
    (tmp_path / "metrics.jsonl").write_text(line(1, 1.0))
    for package in ("wandb", "mlflow", "tensorboard"):
        (tmp_path / "packages" / package).mkdir(parents=True)
        (tmp_path / "packages" / package / "__init__.py").write_text("raise ImportError\n")
    process = program(tmp_path, "--sink", sink, "--once", PYTHONPATH=str(tmp_path / "packages"))
    assert process.returncode == 2
    assert process.stderr == (
        f"follow.py: {sink} is not installed: 'uv pip install {sink}' installs it into mpzero's .venv.\n"
    )


class Calls(list):
    """A stand-in for a package: records each call."""

    def record(self, name: str, answer=None):
        return lambda *positional, **named: self.append((name, positional, named)) or answer


def test_wandb_gets_one_run_with_the_runs_id(tmp_path, monkeypatch):
    calls = Calls()
    run = types.SimpleNamespace(
        define_metric=calls.record("define"), log=calls.record("log"), finish=calls.record("finish")
    )
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=calls.record("init", run)))
    sink = sinks.WeightsAndBiases(RUN, 1, folder=tmp_path, project="p")
    sink.write(row_of(line(7, 9.0, 2.5)))
    sink.close()
    assert ("init", (), {"project": "p", "id": RUN, "resume": "allow"}) in calls
    assert ("define", ("*",), {"step_metric": "step"}) in calls
    assert calls[-2:] == [("log", ({"loss/train": 2.5, "step": 7},), {}), ("finish", (), {})]


@pytest.mark.parametrize("known", [False, True])
def test_mlflow_finds_the_run_by_its_tag(tmp_path, monkeypatch, known):
    calls = Calls()
    run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="m1"))
    client = types.SimpleNamespace(
        get_experiment_by_name=calls.record("get", types.SimpleNamespace(experiment_id="e") if known else None),
        create_experiment=calls.record("create_experiment", "e"),
        search_runs=calls.record("search", [run] if known else []),
        create_run=calls.record("create_run", run),
        log_batch=calls.record("log"),
        set_terminated=calls.record("end"),
    )
    entities = types.SimpleNamespace(Metric=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow", types.SimpleNamespace(MlflowClient=lambda: client, entities=entities))
    sink = sinks.MLflow(RUN, 1, folder=tmp_path, project="p")
    sink.write(row_of(line(7, 9.0, 2.5)))
    sink.close()
    assert ("create_run" in [name for name, *_ in calls]) != known
    assert calls[-2:] == [("log", ("m1",), {"metrics": [("loss/train", 2.5, 9000, 7)]}), ("end", ("m1",), {})]
