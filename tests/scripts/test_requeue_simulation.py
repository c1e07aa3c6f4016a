"""scripts/requeue: jobs of random clusters, against a model of what may end one.

None is lost, none restarts for ever, none leaves a healthy node out.
"""

import random
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.checkpoint import Checkpoint
from requeue.decision import MOST_WAITS, Event, decide
from requeue.nodes import NodeState
from requeue.return_to_queue import return_to_queue
from requeue.slurm import JobRecord, Silent
from requeue.state import State, format_state, parse_state
from requeue.table import Kind, Verb

NODES = [f"n{number}" for number in range(8)]
LAST_STEP = 40


@dataclass
class Cluster:
    """Slurm, as return_to_queue() asks it, and what is wrong with its nodes."""

    choose: random.Random
    sick: frozenset[str] = frozenset()
    least: int = 4
    excluded: list[str] = field(default_factory=list)
    pending: bool = False
    cancelled: bool = False
    silent: bool = False  # the controller is away: each command fails after it was asked for long enough
    restarts: int = 0
    partition: str = "all"
    nodelist: str = ""
    job: str = "7"

    def answer(self) -> None:
        if self.silent:
            raise Silent("Unable to contact slurm controller")

    def job_record(self, patiently: bool = True) -> JobRecord | None:
        # Asked patiently, a controller that comes back has answered.
        if self.silent and not patiently:
            return None
        running = not self.pending and not self.cancelled
        return JobRecord(running, False, True, "", ",".join(self.excluded), self.restarts, tasks=self.least)

    def requeue(self) -> None:
        if self.cancelled:
            return
        self.pending, self.restarts = True, self.restarts + 1

    def expand(self, nodelist: str) -> list[str]:
        return nodelist.split(",") if nodelist else []

    def partition_nodes(self) -> dict[str, NodeState]:
        self.answer()
        return dict.fromkeys(NODES, NodeState("idle"))

    def comment(self, text: str) -> None:
        self.answer()

    def exclude(self, nodelist: str) -> None:
        self.answer()
        self.excluded = nodelist.split(",")

    def delay(self, minutes: int) -> None:
        self.answer()
        assert 10 <= minutes <= 60

    def requeues_preempted_jobs(self) -> bool:
        return False

    def nodes_of_a_start(self) -> list[str]:
        free = [node for node in NODES if node not in self.excluded]
        assert len(free) >= self.least, "the job waits for ever"
        nodes = self.choose.sample(free, self.least)
        self.nodelist = ",".join(nodes)
        return nodes


@dataclass
class Outcome:
    kind: Kind | None  # None: finished; Kind.STARTED: Slurm ended the start, and nobody told the job
    steps: int  # that it saved
    nodes: tuple[str, ...] = ()


def run_once(choose: random.Random, cluster: Cluster, step: int, calm: bool) -> Outcome:
    """What becomes of one start. `calm`: only sick nodes disturb it."""
    nodes = cluster.nodes_of_a_start()
    sick = tuple(sorted(cluster.sick.intersection(nodes)))
    steps = choose.choice((0, 0, 3, 7))
    if sick:
        kind = choose.choice((Kind.REFUSED, Kind.NO_TASKS, Kind.FAILED))
        return Outcome(kind, steps if kind is Kind.FAILED else 0, sick)
    if calm:
        return Outcome(None, LAST_STEP)
    kind = choose.choice((Kind.STOPPED, Kind.FAILED, Kind.SHARED_FAILURE, Kind.STARTED, Kind.STOPPED, None))
    if kind is None or step + steps >= LAST_STEP:
        return Outcome(None, LAST_STEP)
    # Of a hang of what the hosts share, all are named.
    return Outcome(
        kind, 0 if kind is Kind.SHARED_FAILURE else steps, tuple(nodes) if kind is Kind.SHARED_FAILURE else ()
    )


@dataclass
class Model:
    """Why a job may end for good, counted here from the outcomes alone."""

    limit: int
    failures: int = 0
    refusals: int = 0
    unsaved: int = 0
    waits: int = 0
    failed_before: bool = False
    blamed: set[str] = field(default_factory=set)

    def may_end(self, outcome: Outcome) -> bool:
        repeated = False
        if outcome.steps > 0:
            self.failures = self.refusals = self.unsaved = 0
            self.failed_before, self.blamed = False, set()
        elif outcome.kind not in (Kind.REFUSED, Kind.NO_TASKS, Kind.SHARED_FAILURE):
            self.unsaved += 1
        if outcome.kind is not Kind.STARTED:
            self.waits = self.waits + 1 if outcome.kind is Kind.SHARED_FAILURE else 0
        if outcome.kind is Kind.FAILED:
            repeated = self.failed_before and set(outcome.nodes) <= self.blamed
            self.failures, self.failed_before = self.failures + 1, True
            self.blamed.update(outcome.nodes)
        elif outcome.kind is Kind.STOPPED:
            self.failed_before = False
        elif outcome.kind in (Kind.REFUSED, Kind.NO_TASKS):
            self.refusals += 1
        if outcome.kind is Kind.SHARED_FAILURE:
            return self.waits > MOST_WAITS
        return repeated or max(self.failures, self.refusals, self.unsaved) > self.limit


def simulate(seed: int) -> str:
    """How the job ended."""
    choose = random.Random(seed)
    limit = choose.choice((0, 1, 3, 3, 5))
    cluster = Cluster(choose, frozenset(choose.sample(NODES, choose.choice((0, 0, 1, 2, 3)))))
    model = Model(limit)
    state, step, saved_at, started = State(job=""), 0, 0, 0
    calm_after = choose.choice((0, 3, 10, 100))
    while True:
        newest = Checkpoint(step, f"{saved_at}.0", f"tiny-{step}steps") if step else Checkpoint()
        facts = {"job": "7", "restart": cluster.restarts, "max_restarts": limit, "folder": "ck", "newest": newest}
        begun = decide(state, Event(kind=Kind.STARTED, **facts))
        if begun.verb is Verb.FINISH:
            assert model.unsaved > limit, "lost"
            return "ended"
        started += 1
        # Each progress allows so many starts, and there are no more than LAST_STEP of them.
        assert started <= (LAST_STEP + 1) * 4 * (limit + 2) * MOST_WAITS, "it restarts for ever"
        cluster.pending = False
        state = parse_state(format_state(begun.state))
        outcome = run_once(choose, cluster, step, calm=started > calm_after)
        if outcome.kind is None:
            return "finished"
        if outcome.steps:
            step, saved_at = step + outcome.steps, saved_at + 1
        ends = model.may_end(outcome)
        if outcome.kind is Kind.STARTED:
            # A node died: Slurm requeues the job by itself, and the next start counts it.
            cluster.restarts += 1
            continue
        cluster.silent = choose.random() < 0.2
        cluster.cancelled = choose.random() < 0.02
        newest = Checkpoint(step, f"{saved_at}.0", f"tiny-{step}steps") if step else Checkpoint()
        event = Event(kind=outcome.kind, status=1, nodes=outcome.nodes, **{**facts, "newest": newest})
        before = list(cluster.excluded)
        action = decide(state, event)
        assert (action.verb is Verb.FINISH) == ends, "lost, or restarted once too often"
        if ends:
            return "ended"
        answers = []
        return_to_queue(cluster, action, facts["restart"], partial(answers.append, True))
        assert answers == [True]
        if cluster.cancelled:
            assert not cluster.pending, "a job that was cancelled starts again"
            return "cancelled"
        assert cluster.pending, "lost"
        wrong = set(cluster.excluded) - set(before) - cluster.sick
        assert not wrong, f"{wrong} are healthy"
        in_again = set(outcome.nodes) - set(cluster.excluded)
        assert not in_again or cluster.silent or outcome.kind is Kind.SHARED_FAILURE, f"{in_again} are not excluded"
        state = action.state


def test_a_thousand_random_jobs_end_as_the_model_says(capsys):
    ends = [simulate(seed) for seed in range(1000)]
    capsys.readouterr()
    # Each way to end is there.
    assert {end: ends.count(end) > 20 for end in ("finished", "ended", "cancelled")} == dict.fromkeys(set(ends), True)
