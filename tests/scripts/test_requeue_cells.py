"""scripts/requeue/table.py: each cell, standing of the job × event, reached from a state and an event."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.checkpoint import Checkpoint
from requeue.decision import MOST_WAITS, Event, decide, standings_of
from requeue.state import State
from requeue.table import TABLE, Kind, Standing, Verb, cell_of

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/stopping-and-failures.md"
FOUR = Checkpoint(step=4, time="14.0", name="tiny-4steps")
FIVE = Checkpoint(step=5, time="15.0", name="tiny-5steps")
LIMIT = 3
# A start that resumed from step 4, of a job that may restart three times.
RUNNING = State(job="7", running=True, start_step=4, checkpoint_time="14.0", furthest_step=4)
EVENT = Event(kind=Kind.STARTED, job="7", restart=1, max_restarts=LIMIT, newest=FOUR, folder="ck", status=9)

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
    state = replace(RUNNING, **differs)
    event = replace(EVENT, kind=kind, **facts)
    action = decide(state, event)
    assert (action.verb, action.status) == (verb, status)
    assert "{" not in action.why and (action.why != "") == (verb is not Verb.START and kind is not Kind.USER_ERROR)
    # Only a job that is requeued leaves nodes out, and not where its surroundings are to blame: then it waits.
    surrounded = verb is Verb.REQUEUE and kind is Kind.SHARED_FAILURE
    assert action.nodes == (event.nodes if verb is Verb.REQUEUE and not surrounded else ())
    assert (action.minutes > 0) == surrounded
    assert action.state is None if (kind, standing) == (Kind.STARTED, Standing.UNKNOWN) else action.state.job == "7"


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
@pytest.mark.parametrize("standing", Standing, ids=lambda standing: standing.name)
def test_the_job_is_in_that_standing_and_no_other(kind, standing):
    differs, facts = STANDINGS[standing]
    state = replace(RUNNING, **differs)
    before = state if state.job == "7" else State(job="7")
    held = standings_of(before, state, replace(EVENT, kind=kind, **facts))
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
