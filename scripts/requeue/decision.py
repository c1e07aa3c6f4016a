"""What a Slurm job does when it starts and when its run ends: decide(state, event), by the table below.

Nothing here reads or writes anything. command.py gathers the state and the event, and carries out the action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from requeue.checkpoint import Checkpoint
from requeue.state import State

# Exit statuses, as in base/error.hpp and scripts/launch.sh.
USER_ERROR = 2
STOPPED = 75
NO_STEP = 125
# Of ranks that SIGUSR1 and SIGTERM end: before their first step, ranks do not catch these signals.
ENDED_BY_SIGUSR1 = 138
ENDED_BY_SIGTERM = 143


class Kind(Enum):
    STARTED = "a start of the job"
    USER_ERROR = "a user error"
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
    resume_from: str | None = None  # the value of --resume_from_checkpoint
    resume_step: int = 0  # the step that it names
    overwrite: bool = False  # --overwrite: another run's checkpoints are moved aside
    kept: bool = True  # the state can be written


def may_be_stop(status: int) -> bool:
    """Whether a run that ended so was perhaps asked to end although the job's shell got no signal: the shell is not
    told of a preemption that leaves the ranks time, nor of --signal without B:, and Slurm creates no step for a job
    that it is ending. Slurm's record of the job decides: wants_the_nodes()."""
    return status in (ENDED_BY_SIGUSR1, ENDED_BY_SIGTERM, NO_STEP)


def kind_of_end(status: int, stopped: bool) -> Kind:
    """`stopped`: the job's shell got a signal, or a signal ended the ranks while Slurm wanted the nodes back."""
    if status == USER_ERROR:
        return Kind.USER_ERROR
    if status == STOPPED or stopped:
        return Kind.STOPPED
    return Kind.NO_STEP if status == NO_STEP else Kind.FAILED


class Verb(Enum):
    START = "start"  # the run starts
    FINISH = "finish"  # the job ends for good
    REQUEUE = "requeue"  # back into the queue, without the nodes


@dataclass(frozen=True)
class Action:
    verb: Verb
    state: State | None  # to be written; None: restarts.txt stays as it is
    status: int = 0  # that the job's shell ends with
    why: str = ""  # one sentence
    nodes: tuple[str, ...] = ()  # to be excluded
    own: bool = False  # START: from the job's own last checkpoint, whatever the flags of its first start say
    notes: tuple[str, ...] = ()  # sentences that are said first


@dataclass(frozen=True)
class Case:
    """What the conditions of the table look at: an event, and the state before and after it was counted."""

    before: State
    after: State
    event: Event
    known: bool = True  # the state before tells which checkpoints are this job's own

    def always(self) -> bool:
        return True

    def might_undo(self) -> bool:
        """Whether the flags of the job's first start, followed again, could undo what it has saved since."""
        requeued = self.event.kind is Kind.STARTED and self.event.restart > 0
        return requeued and not self.known and first_flags(self.event) != "" and self.event.newest.step > 0

    def unsaved_too_often(self) -> bool:
        return self.after.unsaved_starts > self.event.max_restarts

    def failed_too_often(self) -> bool:
        return self.after.failures > self.event.max_restarts

    def refused_too_often(self) -> bool:
        return self.after.refusals > self.event.max_restarts

    def failed_again(self) -> bool:
        another_host = not set(self.event.nodes) <= set(self.before.blamed_nodes)
        return self.before.last_run_failed and not has_saved(self.before, self.event) and not another_host

    def restarted_too_often(self) -> bool:
        """Where the state cannot be written, Slurm's count of the starts is all that is known."""
        return not self.event.kept and self.event.restart >= self.event.max_restarts


@dataclass(frozen=True)
class Row:
    kind: Kind
    when: Callable[[Case], bool]
    verb: Verb
    status: int | None = None  # None: the event's
    why: str = ""


UNKEPT = (
    "Slurm has started this job {starts} times, which is all that is known without restarts.txt, and MAX_RESTARTS is "
    "{limit}: it is not requeued; {stays}."
)

# Word for word as in scripts/requeue.sh, for where no Python runs.
NOT_KNOWN = (
    "Whether this job has saved since it began with --resume_from_checkpoint or --overwrite is not known, and "
    "beginning so again could undo it: the job ends. 'sbatch train.sbatch' without these flags resumes from the last "
    "checkpoint; with them it begins again."
)

# The first row of an event's kind whose condition holds is taken.
TABLE = (
    Row(Kind.STARTED, Case.might_undo, Verb.FINISH, 1, NOT_KNOWN),
    Row(Kind.STARTED, Case.unsaved_too_often, Verb.FINISH, 1,
        "Slurm has ended this job {unsaved} times in a row before it could save anything: it is not started again. "
        "Shorten CHECKPOINT_FREQ, or look at the nodes (sacct -j {job})."),
    Row(Kind.STARTED, Case.always, Verb.START, 0),
    Row(Kind.USER_ERROR, Case.always, Verb.FINISH),
    Row(Kind.STOPPED, Case.unsaved_too_often, Verb.FINISH, 1,
        "The job was stopped {unsaved} times in a row before it could save anything: it is not requeued. Give it more "
        "time (--time), or save more often (CHECKPOINT_FREQ)."),
    Row(Kind.STOPPED, Case.restarted_too_often, Verb.FINISH, 1, UNKEPT),
    Row(Kind.STOPPED, Case.always, Verb.REQUEUE, None, "The run was stopped; {stays}."),
    Row(Kind.NO_STEP, Case.always, Verb.FINISH, USER_ERROR,
        "Slurm did not create the step of the ranks, and srun says why above: no rank has run, so that no host is to "
        "blame, and the job is not requeued; fix what srun names, then 'sbatch train.sbatch' again."),
    Row(Kind.FAILED, Case.failed_too_often, Verb.FINISH, None,
        "That was failure {failures} of this job, and MAX_RESTARTS is {limit}: it is not requeued; {stays}."),
    Row(Kind.FAILED, Case.failed_again, Verb.FINISH, None,
        "It failed twice with no checkpoint in between, and no other host is to blame this time: it is not requeued; "
        "{stays}."),
    Row(Kind.FAILED, Case.restarted_too_often, Verb.FINISH, None, UNKEPT),
    Row(Kind.FAILED, Case.always, Verb.REQUEUE, None,
        "Requeue {failures} of at most {limit} after failures; {stays}."),
    Row(Kind.REFUSED, Case.refused_too_often, Verb.FINISH, 1,
        "Hosts were refused {refusals} times, and MAX_RESTARTS is {limit}: the job is not requeued. "
        "'CHECK_NODES=false sbatch train.sbatch' trains anyway."),
    Row(Kind.REFUSED, Case.restarted_too_often, Verb.FINISH, 1, UNKEPT),
    Row(Kind.REFUSED, Case.always, Verb.REQUEUE, 1, "Requeue {refusals} of at most {limit} for refused hosts."),
)  # fmt: skip


def decide(state: State, event: Event) -> Action:
    """`state` is that of the newest start in the folder, whatever job it was. Defined for every state and event."""
    case = case_of(state, event)
    row = row_of(case)
    own = row.verb is Verb.START and resumes_from_own(case.after, event)
    return Action(
        verb=row.verb,
        # A state that is written is taken for known by the next start.
        state=None if case.might_undo() else replace(case.after, running=row.verb is Verb.START),
        status=event.status if row.status is None else row.status,
        why=fill_in(row.why, case),
        nodes=event.nodes if row.verb is Verb.REQUEUE else (),
        own=own,
        notes=notes(event, own),
    )


def case_of(state: State, event: Event) -> Case:
    before = state if state.job == event.job else State(job=event.job)
    return Case(before, count(before, event), event, knows_checkpoints(before))


def row_of(case: Case) -> Row:
    return next(row for row in TABLE if row.kind is case.event.kind and row.when(case))


def has_saved(state: State, event: Event) -> bool:
    """Whether a checkpoint was saved since the start that the state tells of. Of an end whose start was not counted, no
    checkpoint is known to be the job's own."""
    return state.running and event.newest.time != state.checkpoint_time and event.newest.step > state.start_step


def knows_checkpoints(state: State) -> bool:
    """Whether a start of the job was counted, so that the checkpoints it found are known. False, too, where it found
    none, saved none, and has ended: a checkpoint that is there now came later, from whom is not known."""
    return state.running or state.has_saved or state.checkpoint_time != "0"


def resumes_from_own(state: State, event: Event) -> bool:
    """A requeued job has the flags of its first start, which would undo what it has done since."""
    return event.restart > 0 and state.has_saved


def count(state: State, event: Event) -> State:
    if event.kind is Kind.USER_ERROR:
        return state
    if event.kind is Kind.REFUSED:
        return replace(state, refusals=state.refusals + 1)
    # A start that Slurm ended itself (a node that died, a preemption without grace) could not tell: it is counted now.
    if event.kind is not Kind.STARTED or state.running:
        if has_saved(state, event):
            state = replace(state, unsaved_starts=0, has_saved=True)
            if event.kind is Kind.STARTED:
                state = replace(state, last_run_failed=False)
        else:
            state = replace(state, unsaved_starts=state.unsaved_starts + 1)
    if event.kind is Kind.STARTED:
        from_newest = not first_flags(event) or resumes_from_own(state, event)
        return replace(
            state, start_step=event.newest.step if from_newest else event.resume_step, checkpoint_time=event.newest.time
        )
    if event.kind is Kind.STOPPED:
        return replace(state, last_run_failed=False)
    if event.kind is Kind.FAILED:
        blamed = tuple(dict.fromkeys(state.blamed_nodes + event.nodes))
        return replace(state, failures=state.failures + 1, last_run_failed=True, blamed_nodes=blamed)
    return state


def fill_in(sentence: str, case: Case) -> str:
    state, event = case.after, case.event
    return sentence.format(
        unsaved=state.unsaved_starts,
        failures=state.failures,
        refusals=state.refusals,
        job=event.job,
        limit=event.max_restarts,
        starts=event.restart + 1,
        stays=what_stays(event),
    )


def what_stays(event: Event) -> str:
    if event.newest.step > 0:
        return f"the same job resumes from step {event.newest.step}, {event.folder}/{event.newest.name}"
    return "there is no checkpoint yet, so it starts over"


def first_flags(event: Event) -> str:
    """The flags that a job begins with once; empty: none."""
    flags = [] if event.resume_from is None else [f"--resume_from_checkpoint {event.resume_from}"]
    return " ".join(flags + ["--overwrite"] * event.overwrite)


def notes(event: Event, own: bool) -> tuple[str, ...]:
    if event.kind is Kind.FAILED:
        # mpzero itself has told its reason; where it could not, its exit status is all there is.
        reason = f": {event.reason}" if event.reason else ""
        return (f"The run failed with status {event.status}{reason}",)
    if own and first_flags(event):
        return (
            f"This job has saved since it began with {first_flags(event)}, which is left out: {what_stays(event)}.",
        )
    return ()
