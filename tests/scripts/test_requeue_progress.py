"""scripts/requeue: which checkpoint counts as saved by the job itself."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.checkpoint import Checkpoint, newest_checkpoint, requested_step
from requeue.decision import Event, decide
from requeue.state import State
from requeue.table import Kind, Verb

HUNDRED = Checkpoint(step=100, time="14.000000001", name="tiny-100steps")


def event(kind: Kind, newest: Checkpoint, **facts) -> Event:
    return Event(kind=kind, job="7", restart=0, max_restarts=3, newest=newest, folder="ck", **facts)


@pytest.mark.parametrize("kind", [Kind.STOPPED, Kind.FAILED])
def test_a_checkpoint_that_was_there_at_the_start_is_not_the_jobs(kind):
    # The job begins from step 90 of another folder; its own folder has step 100 of another run.
    begun = decide(State(job=""), event(Kind.STARTED, HUNDRED, resume_from="/other", resume_step=90)).state
    ended = decide(begun, event(kind, HUNDRED, status=75 if kind is Kind.STOPPED else 1)).state
    assert (begun.start_step, ended.has_saved, ended.unsaved_starts) == (90, False, 1)
    # The same step, saved anew within the same second, is.
    saved = decide(begun, event(kind, replace(HUNDRED, time="14.000000002"), status=75)).state
    assert (saved.has_saved, saved.unsaved_starts) == (True, 0)


@pytest.mark.parametrize("state", [State(job=""), State(job="6", running=True), State(job="7", unsaved_starts=1)])
@pytest.mark.parametrize("kind", [Kind.STOPPED, Kind.FAILED])
def test_an_end_whose_start_was_not_counted_has_saved_nothing(state, kind):
    ended = decide(state, event(kind, HUNDRED, status=75 if kind is Kind.STOPPED else 1)).state
    assert (ended.has_saved, ended.unsaved_starts) == (False, 2 if state.job == "7" else 1)
    # And what is there may be the job's: nothing says that it is not.
    again = replace(event(Kind.STARTED, HUNDRED, overwrite=True), restart=1)
    assert (decide(ended, again).verb, decide(ended, again).state) == (Verb.FINISH, None)
    assert decide(ended, replace(again, overwrite=False)).verb is Verb.START


def test_two_checkpoints_of_one_second_are_told_apart(tmp_path):
    latest = tmp_path / "latest"
    latest.write_text("tiny-4steps\n")
    found = set()
    for nanoseconds in (1, 2):
        os.utime(latest, ns=(0, 1_763_778_530_000_000_000 + nanoseconds))
        found.add(newest_checkpoint(tmp_path))
    assert found == {Checkpoint(4, f"1763778530.00000000{n}", "tiny-4steps") for n in (1, 2)}


@pytest.mark.parametrize(
    ("path", "step"), [("run", 90), ("run/", 90), ("run/tiny-7steps", 7), ("run/tiny-7steps/", 7), ("none", 0)]
)
def test_the_step_to_resume_from_is_that_of_the_folders_newest_checkpoint(tmp_path, path, step):
    (tmp_path / "run/tiny-7steps").mkdir(parents=True)
    (tmp_path / "run/latest").write_text("tiny-90steps\n")
    assert requested_step(path if path == "none" else f"{tmp_path}/{path}") == step
