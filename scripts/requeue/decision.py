"""Determines the action at each start of a Slurm job and at the end of its run, from the table in table.py.

decide(state, event) performs no I/O: command.py collects the state and the event, and carries out the action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from requeue.checkpoint import Checkpoint
from requeue.log import counted
from requeue.state import State
from requeue.table import USER_ERROR, Cell, Kind, Standing, Verb, cell_of

# Exit statuses, as in base/error.hpp and scripts/launch.sh.
STOPPED = 75
NO_TASKS = 123
NO_STEP = 125
# Exit statuses of ranks that were ended by SIGHUP, SIGINT, SIGUSR1, SIGUSR2 or SIGTERM, which ranks do not catch
# before their first step.
ENDED_BY_STOP = (129, 130, 138, 140, 143)

# First wait of a job after a shared resource failed; doubles each time.
FIRST_WAIT_MINUTES = 10
LONGEST_WAIT_MINUTES = 60
# One day in total: 10, 20 and 40 minutes, then one hour each time.
MOST_WAITS = 26


@dataclass(frozen=True)
class Event:
    kind: Kind
    job: str
    restart: int  # number of earlier starts of the job, according to Slurm
    max_restarts: int
    newest: Checkpoint
    folder: str  # checkpoint folder
    status: int = 0  # exit status of mpzero or, if mpzero did not run, of the failed step
    reason: str = ""  # reason of a failure
    nodes: tuple[str, ...] = ()  # nodes that are faulty or refused
    resume_from: str | None = None  # the value of --resume_from_checkpoint
    resume_step: int = 0  # step in the name of that checkpoint
    overwrite: bool = False  # --overwrite: moves another run's checkpoints aside
    kept: bool = True  # True if the state can be written


def may_be_stop(status: int) -> bool:
    """Returns True if the run may have been stopped without a signal to the job's shell: preemption with GraceTime,
    and --signal without "B:", signal only the steps, and Slurm creates no step for a job that it is ending. The caller
    checks Slurm's record of the job with reclaims_nodes()."""
    return status in (*ENDED_BY_STOP, NO_STEP, NO_TASKS)


def kind_of_end(status: int, stopped: bool, nodes: tuple[str, ...] = ()) -> Kind:
    """`stopped`: True if the job's shell received a signal, or a signal ended the ranks while Slurm reclaimed the
    nodes. `nodes`: nodes on which srun could not start tasks."""
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
    state: State | None  # state to write; None: keep the record
    status: int = 0  # exit status of the job's shell
    why: str = ""  # one sentence
    nodes: tuple[str, ...] = ()  # nodes to exclude
    minutes: int = 0  # REQUEUE: minimum wait of the job
    reason: str = ""  # REQUEUE: reason of the event, for the job's comment
    own: bool = False  # START: resumes from the job's own last checkpoint, ignoring the flags of its first start
    notes: tuple[str, ...] = ()  # sentences to log first


def decide(state: State, event: Event) -> Action:
    """Returns the action for any state and event. `state`: the state of the job's latest start."""
    before = state if state.job == event.job else State(job=event.job)
    after = count(before, event)
    standings = standings_of(before, after, event)
    cell = cell_of(event.kind, standings)
    own = cell.verb is Verb.START and resumes_from_own(after, event)
    requeued = cell.verb is Verb.REQUEUE
    waits = requeued and event.kind is Kind.SHARED_FAILURE
    return Action(
        verb=cell.verb,
        # Do not write an unknown state, because the next start would rely on it.
        state=None if Standing.UNKNOWN in standings else replace(after, running=cell.verb is Verb.START),
        status=event.status if cell.status is None else cell.status,
        why=fill_in(cell, after, event),
        nodes=event.nodes if requeued and not waits else (),
        minutes=wait_minutes(after) if waits else 0,
        reason=event.reason if requeued else "",
        own=own,
        notes=notes(event, own),
    )


def standings_of(before: State, after: State, event: Event) -> set[Standing]:
    """Returns all conditions that hold, given the state before and after counting the event."""
    limit = event.max_restarts
    # If the record cannot be written, e.g. because its folder fails, waits are not counted.
    starts = limit + MOST_WAITS if event.kind is Kind.SHARED_FAILURE else limit
    stopped_and_saved = event.kind is Kind.STOPPED and (event.status == STOPPED or has_saved(before, event))
    requeued = event.kind is Kind.STARTED and event.restart > 0
    known = knows_checkpoints(before)
    another_host = not set(event.nodes) <= set(before.blamed_nodes)
    holds = {
        # Repeating the flags of the job's first start could discard its progress.
        Standing.UNKNOWN: requeued and not known and first_flags(event) != "" and event.newest.step > 0,
        Standing.FAILURES: after.failures > limit,
        Standing.REPEATED: before.last_run_failed and not has_saved(before, event) and not another_host,
        Standing.UNSAVED: after.unsaved_starts > limit,
        Standing.REFUSALS: after.refusals > limit,
        Standing.WAITED: after.waits > MOST_WAITS,
        # If the state cannot be written, only Slurm's number of starts is known.
        Standing.UNCOUNTED: not event.kept and event.restart >= starts and not stopped_and_saved,
    }
    return {standing for standing, held in holds.items() if held}


def has_saved(state: State, event: Event) -> bool:
    """Returns True if a checkpoint was saved since the start that the state describes, and False if that start was not
    counted, because the checkpoint may then belong to another run."""
    return state.running and event.newest.time != state.checkpoint_time and event.newest.step > state.start_step


def knows_checkpoints(state: State) -> bool:
    """Returns True if a counted start of the job found or may have saved checkpoints. If it found none and
    saved none before it ended, any existing checkpoint is from an unknown later run."""
    return state.running or state.has_saved or state.checkpoint_time != "0"


def resumes_from_own(state: State, event: Event) -> bool:
    """Returns True if the job must ignore its original flags, which Slurm passes again when it requeues the job."""
    return event.restart > 0 and state.has_saved


def count(state: State, event: Event) -> State:
    if event.kind is Kind.USER_ERROR:
        return state
    if event.kind in (Kind.REFUSED, Kind.NO_TASKS):
        return replace(state, refusals=state.refusals + 1, waits=0)
    if event.kind is Kind.SHARED_FAILURE:
        return replace(state, waits=state.waits + 1)
    # If Slurm ended a start itself (a dead node, a preemption without GraceTime), the next start counts it.
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
    # A run that fell back to an older checkpoint repeats steps, which are not progress.
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
    """Returns the resume point, and the job that will use it: a new job if this job has ended permanently."""
    who = "the same sbatch command" if verb is Verb.FINISH else "the same job"
    if event.newest.step > 0:
        return f"{who} resumes from step {event.newest.step}, {event.folder}/{event.newest.name}"
    return f"no checkpoint exists yet, so {who} starts from scratch"


def first_flags(event: Event) -> str:
    """Returns the flags that only the first start of a job may use; empty if there are none."""
    flags = [] if event.resume_from is None else [f"--resume_from_checkpoint {event.resume_from}"]
    return " ".join(flags + ["--overwrite"] * event.overwrite)


def notes(event: Event, own: bool) -> tuple[str, ...]:
    if event.kind is Kind.FAILED:
        # Without a reason, only the exit status is known.
        reason = f": {event.reason}" if event.reason else ""
        return (f"The run failed with status {event.status}{reason}",)
    if event.kind in (Kind.SHARED_FAILURE, Kind.NO_TASKS, Kind.STOPPED) and event.reason:
        return (event.reason,)
    if own and first_flags(event):
        resumed = what_stays(event, Verb.START)
        return (f"This job has saved a checkpoint, so {first_flags(event)} is ignored: {resumed}.",)
    return ()
