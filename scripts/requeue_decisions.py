"""What becomes of a job of Slurm when it starts and when its run ends: decide(state, event), by the table below.

Nothing here reads or writes anything. scripts/requeue.py brings the state and the event, scripts/requeue.sh acts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

# As in base/error.hpp and scripts/launch.sh.
USER_ERROR = 2
STOPPED = 75
NO_STEP = 125


@dataclass(frozen=True)
class Checkpoint:
    """The newest one of the job's folder; step 0: there is none. The time tells two of the same step apart."""

    step: int = 0
    time: str = "0"
    name: str = ""


@dataclass(frozen=True)
class State:
    """What a job keeps from one start to the next (restarts.txt). Another job in the same folder begins anew."""

    job: str  # empty: the file does not say
    failures: int = 0  # of its runs, all in all
    refusals: int = 0  # starts that ended since `mpzero doctor` refused a host
    barren: int = 0  # starts in a row that saved nothing
    failed_before: bool = False  # the last run that ended, failed
    blamed_before: tuple[str, ...] = ()  # nodes that failures were put down to
    open: bool = False  # the last start has not told how it ended: Slurm ended it without a word, or it still runs
    step: int = 0  # the last start went on from here,
    time: str = "0"  # when the newest checkpoint was of this time
    saved: bool = False  # since the job was submitted


class Kind(Enum):
    BEGUN = "a start of the job"
    MISTAKE = "the user's mistake"
    STOPPED = "Slurm or the user asked the run to end"
    NO_STEP = "Slurm did not create the ranks' step, three times"
    FAILED = "a rank was lost, stuck or failed"
    REFUSED = "mpzero doctor refused hosts, or hung on them"


@dataclass(frozen=True)
class Event:
    kind: Kind
    job: str
    restart: int  # how often Slurm has started the job before
    max_restarts: int
    newest: Checkpoint
    folder: str  # of the checkpoints
    status: int = 0  # of mpzero, or of what ended in its place
    reason: str = ""  # of a failure
    nodes: tuple[str, ...] = ()  # that are blamed or refused
    asked: str | None = None  # the value of --resume_from_checkpoint
    asked_step: int = 0  # the step that it names
    overwrite: bool = False  # --overwrite: another run's checkpoints are moved aside
    counted: bool = True  # the state can be kept


def kind_of_end(status: int, stopped: bool) -> Kind:
    """`stopped`: the job's shell got a signal, or a signal ended the ranks while Slurm wanted the nodes back."""
    if status == USER_ERROR:
        return Kind.MISTAKE
    if status == STOPPED or stopped:
        return Kind.STOPPED
    return Kind.NO_STEP if status == NO_STEP else Kind.FAILED


class Verb(Enum):
    GO_ON = "go_on"  # the run begins
    FINISH = "finish"  # the job ends for good
    REQUEUE = "requeue"  # back into the queue, without the nodes


@dataclass(frozen=True)
class Action:
    verb: Verb
    state: State | None  # to be kept; None: what lies there stays
    status: int = 0  # that the job's shell ends with
    why: str = ""  # one sentence
    nodes: tuple[str, ...] = ()  # to be excluded
    own: bool = False  # GO_ON: from the job's own checkpoint, whatever --resume_from_checkpoint says
    notes: tuple[str, ...] = ()  # sentences that are said first


@dataclass(frozen=True)
class Case:
    """What the conditions of the table look at: an event, and the state before and after it was counted."""

    before: State
    after: State
    event: Event
    known: bool = True  # the state before is this job's own

    def always(self) -> bool:
        return True

    def might_undo(self) -> bool:
        """Whether the flags of the job's first start, followed again, could undo what it has saved since."""
        requeued = self.event.kind is Kind.BEGUN and self.event.restart > 0
        return requeued and not self.known and begun_with(self.event) != "" and self.event.newest.step > 0

    def barren_too_often(self) -> bool:
        return self.after.barren > self.event.max_restarts

    def failed_too_often(self) -> bool:
        return self.after.failures > self.event.max_restarts

    def refused_too_often(self) -> bool:
        return self.after.refusals > self.event.max_restarts

    def failed_again(self) -> bool:
        another_host = not set(self.event.nodes) <= set(self.before.blamed_before)
        return self.before.failed_before and not has_saved(self.before, self.event) and not another_host

    def restarted_uncounted(self) -> bool:
        return not self.event.counted and self.event.restart >= self.event.max_restarts


@dataclass(frozen=True)
class Row:
    kind: Kind
    when: Callable[[Case], bool]
    verb: Verb
    status: int | None = None  # None: the event's
    why: str = ""


UNCOUNTED = (
    "Slurm has started this job {starts} times, which is all that is known without restarts.txt, and MAX_RESTARTS is "
    "{limit}: it is not requeued; {stays}."
)

# Word for word as in scripts/requeue.sh, for where no Python runs.
NOT_KNOWN = (
    "Whether this job has saved since it began with --resume_from_checkpoint or --overwrite is not known, and "
    "beginning so again could undo it: the job ends. 'sbatch train.sbatch' without these flags goes on from the last "
    "checkpoint, and with them begins so again."
)

# The first row of an event's kind whose condition holds is taken.
TABLE = (
    Row(Kind.BEGUN, Case.might_undo, Verb.FINISH, 1, NOT_KNOWN),
    Row(Kind.BEGUN, Case.barren_too_often, Verb.FINISH, 1,
        "Slurm has ended this job {barren} times in a row before it could save anything: it is not started again. "
        "Shorten CHECKPOINT_FREQ, or look at the nodes (sacct -j {job})."),
    Row(Kind.BEGUN, Case.always, Verb.GO_ON, 0),
    Row(Kind.MISTAKE, Case.always, Verb.FINISH),
    Row(Kind.STOPPED, Case.barren_too_often, Verb.FINISH, 1,
        "The job was stopped {barren} times in a row before it could save anything: it is not requeued. Give it more "
        "time (--time), or save more often (CHECKPOINT_FREQ)."),
    Row(Kind.STOPPED, Case.restarted_uncounted, Verb.FINISH, 1, UNCOUNTED),
    Row(Kind.STOPPED, Case.always, Verb.REQUEUE, None, "The run was stopped; {stays}."),
    Row(Kind.NO_STEP, Case.always, Verb.FINISH, USER_ERROR,
        "Slurm did not create the step of the ranks, and srun says why above: no rank has run, so that no host is to "
        "blame, and the job is not requeued; mend what srun names, then 'sbatch train.sbatch' again."),
    Row(Kind.FAILED, Case.failed_too_often, Verb.FINISH, None,
        "That was failure {failures} of this job, and MAX_RESTARTS is {limit}: it is not requeued; {stays}."),
    Row(Kind.FAILED, Case.failed_again, Verb.FINISH, None,
        "It failed twice with no checkpoint in between, and no other host is to blame this time: it is not requeued; "
        "{stays}."),
    Row(Kind.FAILED, Case.restarted_uncounted, Verb.FINISH, None, UNCOUNTED),
    Row(Kind.FAILED, Case.always, Verb.REQUEUE, None,
        "Requeue {failures} of at most {limit} after failures; {stays}."),
    Row(Kind.REFUSED, Case.refused_too_often, Verb.FINISH, 1,
        "Hosts were refused {refusals} times, and MAX_RESTARTS is {limit}: the job is not requeued. "
        "'CHECK_NODES=false sbatch train.sbatch' trains all the same."),
    Row(Kind.REFUSED, Case.restarted_uncounted, Verb.FINISH, 1, UNCOUNTED),
    Row(Kind.REFUSED, Case.always, Verb.REQUEUE, 1, "Requeue {refusals} of at most {limit} for refused hosts."),
)  # fmt: skip


def decide(state: State, event: Event) -> Action:
    """`state`: of the newest start, of whatever job it was, or of none that is known. Never fails."""
    case = case_of(state, event)
    row = row_of(case)
    own = row.verb is Verb.GO_ON and goes_on_from_own(case.after, event)
    return Action(
        verb=row.verb,
        # A state that is written is taken for known by the next start.
        state=None if case.might_undo() else replace(case.after, open=row.verb is Verb.GO_ON),
        status=event.status if row.status is None else row.status,
        why=fill_in(row.why, case),
        nodes=event.nodes if row.verb is Verb.REQUEUE else (),
        own=own,
        notes=notes(event, own),
    )


def case_of(state: State, event: Event) -> Case:
    known = state.job == event.job
    before = state if known else State(job=event.job)
    return Case(before, count(before, event), event, known)


def row_of(case: Case) -> Row:
    return next(row for row in TABLE if row.kind is case.event.kind and row.when(case))


def has_saved(state: State, event: Event) -> bool:
    """Whether a checkpoint was saved since the start that the state tells of."""
    return event.newest.time != state.time and event.newest.step > state.step


def goes_on_from_own(state: State, event: Event) -> bool:
    """A requeued job has the flags of its first start, which would undo what it has done since."""
    return event.restart > 0 and state.saved


def count(state: State, event: Event) -> State:
    if event.kind is Kind.MISTAKE:
        return state
    if event.kind is Kind.REFUSED:
        return replace(state, refusals=state.refusals + 1)
    # A start that Slurm ended itself (a node that died, a preemption without grace) could not tell: it is counted now.
    if event.kind is not Kind.BEGUN or state.open:
        if has_saved(state, event):
            state = replace(state, barren=0, saved=True)
            if event.kind is Kind.BEGUN:
                state = replace(state, failed_before=False)
        else:
            state = replace(state, barren=state.barren + 1)
    if event.kind is Kind.BEGUN:
        from_newest = not begun_with(event) or goes_on_from_own(state, event)
        return replace(state, step=event.newest.step if from_newest else event.asked_step, time=event.newest.time)
    if event.kind is Kind.STOPPED:
        return replace(state, failed_before=False)
    if event.kind is Kind.FAILED:
        blamed = tuple(dict.fromkeys(state.blamed_before + event.nodes))
        return replace(state, failures=state.failures + 1, failed_before=True, blamed_before=blamed)
    return state


def fill_in(sentence: str, case: Case) -> str:
    state, event = case.after, case.event
    return sentence.format(
        barren=state.barren,
        failures=state.failures,
        refusals=state.refusals,
        job=event.job,
        limit=event.max_restarts,
        starts=event.restart + 1,
        stays=what_stays(event),
    )


def what_stays(event: Event) -> str:
    if event.newest.step > 0:
        return f"the same job goes on from step {event.newest.step}, {event.folder}/{event.newest.name}"
    return "there is no checkpoint yet, so that it starts over"


def begun_with(event: Event) -> str:
    """The flags that a job begins with once; empty: none."""
    flags = [] if event.asked is None else [f"--resume_from_checkpoint {event.asked}"]
    return " ".join(flags + ["--overwrite"] * event.overwrite)


def notes(event: Event, own: bool) -> tuple[str, ...]:
    if event.kind is Kind.FAILED:
        # mpzero itself has told its reason; where it could not, its exit status is all there is.
        reason = f": {event.reason}" if event.reason else ""
        return (f"The run failed with status {event.status}{reason}",)
    if own and begun_with(event):
        return (f"This job has saved since it began with {begun_with(event)}, which is left out: {what_stays(event)}.",)
    return ()
