"""What a Slurm job does when it starts and when its run ends: decide(state, event), by the table of table.py.

Nothing here reads or writes anything. command.py gathers the state and the event, and carries out the action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from requeue.checkpoint import Checkpoint
from requeue.log import counted
from requeue.state import State
from requeue.table import (
    ENDED_BY_STOP,
    NO_STEP,
    NO_TASKS,
    STOPPED,
    USER_ERROR,
    Cell,
    Kind,
    Standing,
    Verb,
    cell_of,
)

# How long a job whose surroundings fail waits in the queue: twice as long each time.
FIRST_WAIT_MINUTES = 10
LONGEST_WAIT_MINUTES = 60
# A day: 10, 20, 40 minutes, then an hour each time.
MOST_WAITS = 26


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
    notified of a preemption that leaves the ranks time, nor of --signal without B:, and Slurm creates no step for a job
    that it is ending. Slurm's record of the job decides: wants_the_nodes()."""
    return status in (*ENDED_BY_STOP, NO_STEP, NO_TASKS)


def kind_of_end(status: int, stopped: bool, nodes: tuple[str, ...] = ()) -> Kind:
    """`stopped`: the job's shell got a signal, or a signal ended the ranks while Slurm wanted the nodes back. `nodes`:
    those on which srun could not start tasks."""
    if status == USER_ERROR:
        return Kind.USER_ERROR
    if status == STOPPED or stopped:
        return Kind.STOPPED
    if status == NO_TASKS and nodes:
        return Kind.NO_TASKS
    return Kind.NO_STEP if status == NO_STEP else Kind.FAILED


@dataclass(frozen=True)
class Action:
    verb: Verb
    state: State | None  # to be written; None: the record stays as it is
    status: int = 0  # that the job's shell ends with
    why: str = ""  # one sentence
    nodes: tuple[str, ...] = ()  # to be excluded
    minutes: int = 0  # REQUEUE: the job waits at least so long
    reason: str = ""  # REQUEUE: of the event, for the job's comment
    own: bool = False  # START: from the job's own last checkpoint, whatever the flags of its first start say
    notes: tuple[str, ...] = ()  # sentences that are logged first


def decide(state: State, event: Event) -> Action:
    """`state` is that of the job's newest start. Defined for every state and event."""
    before = state if state.job == event.job else State(job=event.job)
    after = count(before, event)
    standings = standings_of(before, after, event)
    cell = cell_of(event.kind, standings)
    own = cell.verb is Verb.START and resumes_from_own(after, event)
    requeued = cell.verb is Verb.REQUEUE
    surrounded = requeued and event.kind is Kind.SURROUNDINGS
    return Action(
        verb=cell.verb,
        # A state that is written is taken for known by the next start.
        state=None if Standing.UNKNOWN in standings else replace(after, running=cell.verb is Verb.START),
        status=event.status if cell.status is None else cell.status,
        why=fill_in(cell, after, event),
        nodes=event.nodes if requeued and not surrounded else (),
        minutes=wait_minutes(after) if surrounded else 0,
        reason=event.reason if requeued else "",
        own=own,
        notes=notes(event, own),
    )


def standings_of(before: State, after: State, event: Event) -> set[Standing]:
    """All that hold, with the state before and after the event was counted."""
    limit = event.max_restarts
    # Without a record, which is in a folder that may be what does not work, the waits are not counted either.
    starts = limit + MOST_WAITS if event.kind is Kind.SURROUNDINGS else limit
    stopped_and_saved = event.kind is Kind.STOPPED and (event.status == STOPPED or has_saved(before, event))
    requeued = event.kind is Kind.STARTED and event.restart > 0
    known = knows_checkpoints(before)
    another_host = not set(event.nodes) <= set(before.blamed_nodes)
    holds = {
        # The flags of the job's first start, followed again, could undo what it has saved since.
        Standing.UNKNOWN: requeued and not known and first_flags(event) != "" and event.newest.step > 0,
        Standing.FAILURES: after.failures > limit,
        Standing.REPEATED: before.last_run_failed and not has_saved(before, event) and not another_host,
        Standing.UNSAVED: after.unsaved_starts > limit,
        Standing.REFUSALS: after.refusals > limit,
        Standing.WAITED: after.waits > MOST_WAITS,
        # Where the state cannot be written, Slurm's count of the starts is all that is known.
        Standing.UNCOUNTED: not event.kept and event.restart >= starts and not stopped_and_saved,
    }
    return {standing for standing, held in holds.items() if held}


def has_saved(state: State, event: Event) -> bool:
    """Whether a checkpoint was saved since the start that the state is of. Of an end whose start was not counted, no
    checkpoint is known to be the job's own."""
    return state.running and event.newest.time != state.checkpoint_time and event.newest.step > state.start_step


def knows_checkpoints(state: State) -> bool:
    """Whether a start of the job was counted, so that the checkpoints it found are known. False, too, where it found
    none, saved none, and has ended: a checkpoint that exists now was saved later, by an unknown run."""
    return state.running or state.has_saved or state.checkpoint_time != "0"


def resumes_from_own(state: State, event: Event) -> bool:
    """A requeued job has the flags of its first start, which would undo what it has done since."""
    return event.restart > 0 and state.has_saved


def count(state: State, event: Event) -> State:
    if event.kind is Kind.USER_ERROR:
        return state
    if event.kind in (Kind.REFUSED, Kind.NO_TASKS):
        return replace(state, refusals=state.refusals + 1, waits=0)
    if event.kind is Kind.SURROUNDINGS:
        return replace(state, waits=state.waits + 1)
    # A start that Slurm ended itself (a node that died, a preemption without grace) is counted by the next start.
    if event.kind is not Kind.STARTED or state.running:
        state = count_saving(state, event)
    if event.kind is Kind.STARTED:
        from_newest = not first_flags(event) or resumes_from_own(state, event)
        step = event.newest.step if from_newest else event.resume_step
        furthest = max(state.furthest_step, step)
        return replace(state, start_step=step, checkpoint_time=event.newest.time, furthest_step=furthest)
    state = replace(state, waits=0)
    if event.kind is Kind.STOPPED:
        return replace(state, last_run_failed=False)
    if event.kind is Kind.FAILED:
        blamed = tuple(dict.fromkeys(state.blamed_nodes + event.nodes))
        return replace(state, failures=state.failures + 1, last_run_failed=True, blamed_nodes=blamed)
    return state


def count_saving(state: State, event: Event) -> State:
    if not has_saved(state, event):
        return replace(state, unsaved_starts=state.unsaved_starts + 1)
    state = replace(state, unsaved_starts=0, has_saved=True)
    if event.kind is Kind.STARTED:
        state = replace(state, last_run_failed=False)
    # A run that fell back to an older checkpoint, since a newer one is damaged, saves steps that are no progress.
    if event.newest.step <= state.furthest_step:
        return state
    return replace(state, failures=0, refusals=0, blamed_nodes=(), furthest_step=event.newest.step)


def wait_minutes(state: State) -> int:
    return min(FIRST_WAIT_MINUTES * 2 ** min(max(state.waits - 1, 0), 10), LONGEST_WAIT_MINUTES)


def fill_in(cell: Cell, state: State, event: Event) -> str:
    return cell.why.format(
        unsaved_starts=counted(state.unsaved_starts, "start"),
        unsaved_times=counted(state.unsaved_starts, "time"),
        waits=counted(state.waits, "time"),
        failures=state.failures,
        refusals=state.refusals,
        refusal_times=counted(state.refusals, "time"),
        job=event.job,
        limit=event.max_restarts,
        start_times=counted(event.restart + 1, "time"),
        stays=what_stays(event, cell.verb),
    )


def what_stays(event: Event, verb: Verb) -> str:
    """What resumes from the newest checkpoint: a job that has ended for good never does."""
    who = "'sbatch train.sbatch'" if verb is Verb.FINISH else "the same job"
    if event.newest.step > 0:
        return f"{who} resumes from step {event.newest.step}, {event.folder}/{event.newest.name}"
    return f"there is no checkpoint yet, so {who} starts over"


def first_flags(event: Event) -> str:
    """The flags that a job begins with once; empty: none."""
    flags = [] if event.resume_from is None else [f"--resume_from_checkpoint {event.resume_from}"]
    return " ".join(flags + ["--overwrite"] * event.overwrite)


def notes(event: Event, own: bool) -> tuple[str, ...]:
    if event.kind is Kind.FAILED:
        # mpzero itself has logged its reason; where it could not, its exit status is all there is.
        reason = f": {event.reason}" if event.reason else ""
        return (f"The run failed with status {event.status}{reason}",)
    if event.kind in (Kind.SURROUNDINGS, Kind.NO_TASKS, Kind.STOPPED) and event.reason:
        return (event.reason,)
    if own and first_flags(event):
        resumed = what_stays(event, Verb.START)
        return (f"This job has saved since it began with {first_flags(event)}, which is dropped: {resumed}.",)
    return ()
