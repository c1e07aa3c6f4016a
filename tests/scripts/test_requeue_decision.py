"""scripts/requeue/decision.py and table.py: what a job does and keeps, by state and event; each cell of the table; and
which checkpoint counts as saved by the job itself."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.checkpoint import Checkpoint, newest_checkpoint, requested_step
from requeue.decision import MOST_WAITS, Event, decide, kind_of_end, may_be_stop, standings_of
from requeue.state import State
from requeue.table import TABLE, Kind, Standing, Verb, cell_of

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/stopping-and-failures.md"
NONE = Checkpoint()
FOUR = Checkpoint(step=4, time="14.0", name="tiny-4steps")
FIVE = Checkpoint(step=5, time="15.0", name="tiny-5steps")
HUNDRED = Checkpoint(step=100, time="14.000000001", name="tiny-100steps")
LIMIT = 3
# A start that went on from step 4, of a job that may restart three times.
OPEN = State(job="7", running=True, start_step=4, checkpoint_time="14.0", furthest_step=4)


def event(kind: Kind, newest: Checkpoint = FOUR, **facts) -> Event:
    return Event(kind=kind, job="7", max_restarts=LIMIT, newest=newest, folder="ck", **{"restart": 0, **facts})


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
    "a failure after a step as far as before is no first": (
        replace(OPEN, failures=2, furthest_step=5), event(Kind.FAILED, FIVE, status=1), Verb.REQUEUE, 1,
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
    # Only a requeued job resumes automatically.
    assert verb is Verb.REQUEUE or "the same job" not in action.why
    assert action.nodes == (what.nodes if verb is Verb.REQUEUE else ())


@pytest.mark.parametrize(("waits", "minutes"), [(0, 10), (1, 20), (2, 40), (3, 60), (25, 60)])
def test_a_job_whose_surroundings_fail_waits_longer_each_time(waits, minutes):
    state = replace(OPEN, waits=waits, unsaved_starts=3)
    assert decide(state, event(Kind.SHARED_FAILURE, status=1)).minutes == minutes


def test_a_job_waits_for_a_day_whatever_max_restarts_is():
    state, minutes = replace(OPEN, running=False), 0
    surrounded = replace(event(Kind.SHARED_FAILURE, status=1), max_restarts=0)
    while minutes < 48 * 60 and (action := decide(state, surrounded)).verb is Verb.REQUEUE:
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


# How a job comes into a standing just before an event, or as the event is counted: what differs in its record, and in
# the event.
STANDINGS = {
    Standing.UNKNOWN: ({"job": ""}, {"overwrite": True}),
    Standing.FAILURES: ({"failures": LIMIT + 1}, {"nodes": ("n1",)}),
    Standing.REPEATED: ({"last_run_failed": True, "blamed_nodes": ("n1",)}, {"nodes": ("n1",)}),
    Standing.UNSAVED: ({"unsaved_starts": LIMIT + 1}, {"nodes": ("n1",)}),
    Standing.REFUSALS: ({"refusals": LIMIT + 1}, {"nodes": ("n1",)}),
    Standing.WAITED: ({"waits": MOST_WAITS + 1}, {"nodes": ("n1",)}),
    Standing.UNCOUNTED: ({}, {"kept": False, "restart": LIMIT + MOST_WAITS, "nodes": ("n1",)}),
    Standing.WITHIN: ({}, {"nodes": ("n1",)}),
}

# The action in each cell, with the exit status ("9" is the event's own): S starts, E ends for good, R is requeued.
ACTIONS = {
    #                     UNKNOWN FAILURES REPEATED UNSAVED REFUSALS WAITED UNCOUNTED WITHIN
    Kind.STARTED:        "E1      S0       S0       E1      S0       S0     S0        S0",
    Kind.USER_ERROR:     "E9      E9       E9       E9      E9       E9     E9        E9",
    Kind.STOPPED:        "R9      R9       R9       E1      R9       R9     E1        R9",
    Kind.NO_STEP:        "E2      E2       E2       E2      E2       E2     E2        E2",
    Kind.NO_TASKS:       "R1      R1       R1       R1      E1       R1     E1        R1",
    Kind.FAILED:         "R9      E9       E9       E9      R9       R9     E9        R9",
    Kind.REFUSED:        "R1      R1       R1       R1      E1       R1     E1        R1",
    Kind.SHARED_FAILURE: "R1      R1       R1       R1      R1       E1     E1        R1",
}  # fmt: skip
VERBS = {"S": Verb.START, "E": Verb.FINISH, "R": Verb.REQUEUE}
CELLS = {
    f"{kind.name} × {standing.name}": (kind, standing, VERBS[word[0]], int(word[1:]))
    for kind, words in ACTIONS.items()
    for standing, word in zip(Standing, words.split(), strict=True)
}


def test_no_cell_is_missing():
    assert len(CELLS) == len(Kind) * len(Standing) == 64
    assert set(TABLE) == set(Kind) and all(Standing.WITHIN in cells for cells in TABLE.values())


@pytest.mark.parametrize(("kind", "standing", "verb", "status"), CELLS.values(), ids=CELLS)
def test_the_cell(kind, standing, verb, status):
    differs, facts = STANDINGS[standing]
    state = replace(OPEN, **differs)
    what = event(kind, **{"restart": 1, "status": 9, **facts})
    action = decide(state, what)
    assert (action.verb, action.status) == (verb, status)
    assert "{" not in action.why and (action.why != "") == (verb is not Verb.START and kind is not Kind.USER_ERROR)
    # Only a job that is requeued leaves nodes out, and not where its surroundings are to blame: then it waits.
    surrounded = verb is Verb.REQUEUE and kind is Kind.SHARED_FAILURE
    assert action.nodes == (what.nodes if verb is Verb.REQUEUE and not surrounded else ())
    assert (action.minutes > 0) == surrounded
    assert action.state is None if (kind, standing) == (Kind.STARTED, Standing.UNKNOWN) else action.state.job == "7"


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
@pytest.mark.parametrize("standing", Standing, ids=lambda standing: standing.name)
def test_the_job_is_in_that_standing_and_no_other(kind, standing):
    differs, facts = STANDINGS[standing]
    state = replace(OPEN, **differs)
    before = state if state.job == "7" else State(job="7")
    held = standings_of(before, state, event(kind, **{"restart": 1, **facts}))
    of_starts = standing is Standing.UNKNOWN and kind is not Kind.STARTED
    assert held == (set() if standing is Standing.WITHIN or of_starts else {standing})


def test_where_several_standings_hold_the_first_of_the_table_decides():
    assert cell_of(Kind.FAILED, {Standing.REPEATED, Standing.FAILURES}) is TABLE[Kind.FAILED][Standing.FAILURES]
    assert cell_of(Kind.STARTED, {Standing.UNSAVED, Standing.UNKNOWN}) is TABLE[Kind.STARTED][Standing.UNKNOWN]
    assert cell_of(Kind.STOPPED, {Standing.FAILURES}) is TABLE[Kind.STOPPED][Standing.WITHIN]


def test_the_documents_show_the_table():
    rows = re.findall(r"^\| `([A-Z_]+)` \|[^|]*\|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE)
    shown = {kind: [cell.strip() for cell in cells.split("|")] for kind, cells in rows}
    words = {Verb.START: "starts", Verb.FINISH: "**ends**", Verb.REQUEUE: "requeued"}
    assert shown == {
        kind.name: [
            words[TABLE[kind][standing].verb] if standing in TABLE[kind] else ""
            for standing in [Standing.WITHIN, *(s for s in Standing if s is not Standing.WITHIN)]
        ]
        for kind in Kind
    }
