"""scripts/requeue/decision.py: what a job does and keeps, by state and event."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.checkpoint import Checkpoint
from requeue.decision import Event, decide, kind_of_end, may_be_stop
from requeue.state import State
from requeue.table import Kind, Verb

NONE = Checkpoint()
FOUR = Checkpoint(step=4, time="14.0", name="tiny-4steps")
FIVE = Checkpoint(step=5, time="15.0", name="tiny-5steps")
# A start that went on from step 4, of a job that may restart three times.
OPEN = State(job="7", running=True, start_step=4, checkpoint_time="14.0", furthest_step=4)


def event(kind: Kind, newest: Checkpoint = FOUR, **facts) -> Event:
    return Event(kind=kind, job="7", restart=0, max_restarts=3, newest=newest, folder="ck", **facts)


# state, event -> verb, status, what differs in the state that is kept (None: nothing is kept), words of the sentence
CASES = {
    "a first start": (
        State(job="6"), event(Kind.STARTED), Verb.START, 0,
        {"running": True, "start_step": 4, "checkpoint_time": "14.0", "furthest_step": 4}, "",
    ),
    "a start that goes back": (
        State(job="7"), event(Kind.STARTED, resume_from="none"), Verb.START, 0,
        {"running": True, "start_step": 0, "checkpoint_time": "14.0"}, "",
    ),
    "Slurm ended the last start, which had saved": (
        replace(OPEN, unsaved_starts=3, last_run_failed=True), event(Kind.STARTED, FIVE), Verb.START, 0,
        {
            "unsaved_starts": 0, "last_run_failed": False, "has_saved": True, "start_step": 5,
            "checkpoint_time": "15.0", "furthest_step": 5,
        },
        "",
    ),
    "a requeue that knows nothing, and begins with no such flag": (
        State(job=""), replace(event(Kind.STARTED), restart=1), Verb.START, 0,
        {"running": True, "start_step": 4, "checkpoint_time": "14.0", "furthest_step": 4}, "",
    ),
    "a requeue that knows nothing, and there is nothing to undo": (
        State(job=""), replace(event(Kind.STARTED, NONE, overwrite=True), restart=1), Verb.START, 0,
        {"running": True}, "",
    ),
    "a first start with a flag, whatever lies there": (
        State(job=""), event(Kind.STARTED, overwrite=True), Verb.START, 0,
        {"running": True, "checkpoint_time": "14.0"}, "",
    ),
    "a stop that saved": (
        replace(OPEN, unsaved_starts=2, last_run_failed=True), event(Kind.STOPPED, FIVE, status=75), Verb.REQUEUE, 75,
        {"running": False, "unsaved_starts": 0, "last_run_failed": False, "has_saved": True, "furthest_step": 5},
        "resumes from step 5, ck/tiny-5steps",
    ),
    "a checkpoint of the same step is no progress": (
        OPEN, event(Kind.STOPPED, replace(FOUR, time="16.0"), status=75), Verb.REQUEUE, 75,
        {"running": False, "unsaved_starts": 1}, "",
    ),
    "a failure of another host": (
        replace(OPEN, failures=1, last_run_failed=True, blamed_nodes=("n1",)),
        event(Kind.FAILED, status=1, nodes=("n2",)), Verb.REQUEUE, 1,
        {"running": False, "failures": 2, "unsaved_starts": 1, "blamed_nodes": ("n1", "n2")}, "requeue 2 of at most 3",
    ),
    "a failure after progress is the first": (
        replace(OPEN, failures=3, refusals=3, last_run_failed=True, blamed_nodes=("n1",)),
        event(Kind.FAILED, FIVE, status=1, nodes=("n2",)), Verb.REQUEUE, 1,
        {"running": False, "failures": 1, "refusals": 0, "has_saved": True, "blamed_nodes": ("n2",),
         "furthest_step": 5}, "requeue 1",
    ),
    "a failure after steps that were saved before is no first": (
        replace(OPEN, failures=2, furthest_step=9), event(Kind.FAILED, FIVE, status=1), Verb.REQUEUE, 1,
        {"running": False, "failures": 3, "has_saved": True, "last_run_failed": True}, "requeue 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("state", "what", "verb", "status", "changes", "words"), CASES.values(), ids=CASES)
def test_the_table(state, what, verb, status, changes, words):
    action = decide(state, what)
    before = state if state.job == "7" else State(job="7")
    kept = None if changes is None else replace(before, **changes)
    assert (action.verb, action.status, action.state) == (verb, status, kept)
    assert words in action.why and "{" not in action.why
    # A job resumes by itself only if it is requeued.
    assert verb is Verb.REQUEUE or "the same job" not in action.why
    assert action.nodes == (what.nodes if verb is Verb.REQUEUE else ())


@pytest.mark.parametrize(("waits", "minutes"), [(0, 10), (1, 20), (2, 40), (3, 60), (25, 60)])
def test_a_job_whose_surroundings_fail_waits_longer_each_time(waits, minutes):
    state = replace(OPEN, waits=waits, unsaved_starts=3)
    assert decide(state, event(Kind.SHARED_FAILURE, status=1)).minutes == minutes


def test_a_job_waits_for_a_day_whatever_max_restarts_is():
    state, minutes = replace(OPEN, running=False), 0
    surrounded = replace(event(Kind.SHARED_FAILURE, status=1), max_restarts=0)
    while (action := decide(state, surrounded)).verb is Verb.REQUEUE:
        state, minutes = action.state, minutes + action.minutes
    assert 24 * 60 <= minutes < 25 * 60 and "one day in total" in action.why
    assert state.unsaved_starts == state.failures == state.refusals == 0
    # Whatever else happens ends the series.
    for kind in (Kind.FAILED, Kind.STOPPED, Kind.REFUSED, Kind.NO_TASKS):
        assert decide(state, replace(surrounded, kind=kind, max_restarts=3)).state.waits == 0


@pytest.mark.parametrize(
    ("kind", "status", "newest", "verb"),
    [
        (Kind.STOPPED, 75, FOUR, Verb.REQUEUE), (Kind.STOPPED, 138, FIVE, Verb.REQUEUE),
        (Kind.STOPPED, 138, FOUR, Verb.FINISH), (Kind.FAILED, 1, FIVE, Verb.FINISH),
        (Kind.SHARED_FAILURE, 1, FOUR, Verb.REQUEUE),
    ],
)  # fmt: skip
def test_a_job_without_a_record_does_not_end_for_a_stop_that_saved(kind, status, newest, verb):
    uncounted = replace(event(kind, newest, status=status, kept=False), restart=9)
    assert decide(OPEN, uncounted).verb is verb


def test_a_saved_step_that_the_job_has_had_before_is_no_progress():
    """The run fell back to an older checkpoint. A step as far as before is none either."""
    for furthest, progress in ((4, True), (5, False), (6, False)):
        state = replace(OPEN, failures=2, furthest_step=furthest)
        assert decide(state, event(Kind.FAILED, FIVE, status=1)).state.failures == (1 if progress else 3)


@pytest.mark.parametrize(
    ("status", "stopped", "kind"),
    [
        (2, False, Kind.USER_ERROR), (2, True, Kind.USER_ERROR), (75, False, Kind.STOPPED), (1, True, Kind.STOPPED),
        (125, True, Kind.STOPPED), (125, False, Kind.NO_STEP), (1, False, Kind.FAILED), (143, False, Kind.FAILED),
    ],
)  # fmt: skip
def test_how_a_run_ended(status, stopped, kind):
    assert kind_of_end(status, stopped) is kind


def test_only_nodes_that_srun_names_make_it_their_fault_that_no_task_started():
    assert kind_of_end(123, False, ("n1",)) is Kind.NO_TASKS
    assert kind_of_end(123, True, ("n1",)) is Kind.STOPPED and kind_of_end(123, False) is Kind.FAILED


def test_slurm_is_asked_about_ranks_that_a_signal_of_a_stop_ended_or_that_it_did_not_start():
    assert [status for status in range(256) if may_be_stop(status)] == [123, 125, 129, 130, 138, 140, 143]


@pytest.mark.parametrize(("restart", "saved", "own"), [(1, True, True), (1, False, False), (0, True, False)])
def test_a_requeued_job_that_has_saved_resumes_from_its_own(restart, saved, own):
    started = replace(event(Kind.STARTED, resume_from="/fsx/other-90steps", resume_step=90), restart=restart)
    action = decide(State(job="7", has_saved=saved, checkpoint_time="13.0"), started)
    assert (action.own, action.state.start_step) == (own, 4 if own else 90)
    assert ("--resume_from_checkpoint /fsx/other-90steps is ignored" in "".join(action.notes)) == own
