"""Actions of a Slurm job, as a table: standing of the job × event → action. Shown in docs/stopping-and-failures.md.

No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# Exit statuses, as in base/error.hpp and scripts/launch.sh.
USER_ERROR = 2
STOPPED = 75
NO_TASKS = 123
NO_STEP = 125
# Statuses of ranks ended by SIGHUP, SIGINT, SIGUSR1, SIGUSR2 and SIGTERM, which ranks do not catch before their first
# step.
ENDED_BY_STOP = (129, 130, 138, 140, 143)


class Kind(Enum):
    """An event."""

    STARTED = "a start of the job"
    USER_ERROR = "a user error"
    STOPPED = "Slurm or the user asked the run to end"
    NO_STEP = "Slurm did not create the ranks' step, three times"
    NO_TASKS = "tasks could not start on nodes that srun names"
    FAILED = "a rank was lost, stuck or failed"
    REFUSED = "mpzero doctor refused hosts, or hung on them"
    SURROUNDINGS = "mpzero doctor hung on at least half of the hosts in one check"


class Standing(Enum):
    """State of the job's record after counting the event. Several may hold: the first with a cell for the event
    decides."""

    UNKNOWN = "the flags of its first start may undo what it has saved, and nobody knows whether it has saved"
    FAILURES = "more failures than MAX_RESTARTS since the last progress"
    REPEATED = "a second failure without progress, and no other host is to blame"
    UNSAVED = "more starts in a row than MAX_RESTARTS that saved nothing"
    REFUSALS = "more refusals than MAX_RESTARTS since the last progress"
    WAITED = "what the hosts share has not worked for a day"
    UNCOUNTED = "the record cannot be written, and Slurm has started the job MAX_RESTARTS times before"
    WITHIN = "none of these"


class Verb(Enum):
    START = "starts"  # the run starts
    FINISH = "ends"  # the job ends for good
    REQUEUE = "is requeued"  # back into the queue, without the nodes that are to blame


@dataclass(frozen=True)
class Cell:
    verb: Verb
    status: int | None = None  # exit status of the job's shell; None: the event's
    why: str = ""  # one sentence; decision.py fills in the placeholders


UNCOUNTED = (
    "Slurm has started this job {start_times}, which is all that is known without its record, and MAX_RESTARTS is "
    "{limit}: it is not requeued; {stays}."
)

NOT_KNOWN = (
    "Whether this job has saved since it began with --resume_from_checkpoint or --overwrite is not known, and "
    "beginning so again could undo it: the job ends. 'sbatch train.sbatch' without these flags resumes from the last "
    "checkpoint; with them it begins again."
)

# A standing without a cell does not affect the event.
TABLE: dict[Kind, dict[Standing, Cell]] = {
    Kind.STARTED: {
        Standing.UNKNOWN: Cell(Verb.FINISH, 1, NOT_KNOWN),
        Standing.UNSAVED: Cell(
            Verb.FINISH, 1,
            "Slurm has ended this job {unsaved_times} in a row before it could save anything: it is not started again. "
            "Shorten CHECKPOINT_FREQ, or look at the nodes (sacct -j {job})."),
        Standing.WITHIN: Cell(Verb.START, 0),
    },
    Kind.USER_ERROR: {
        Standing.WITHIN: Cell(Verb.FINISH),
    },
    Kind.STOPPED: {
        Standing.UNSAVED: Cell(
            Verb.FINISH, 1,
            "The job was stopped {unsaved_times} in a row before it could save anything: it is not requeued. Give it "
            "more time (--time), or save more often (CHECKPOINT_FREQ)."),
        Standing.UNCOUNTED: Cell(Verb.FINISH, 1, UNCOUNTED),
        Standing.WITHIN: Cell(Verb.REQUEUE, None, "The run was stopped; {stays}."),
    },
    Kind.NO_STEP: {
        Standing.WITHIN: Cell(
            Verb.FINISH, USER_ERROR,
            "Slurm did not create the step of the ranks, and srun says why above: no rank has run, so that no host is "
            "to blame, and the job is not requeued; fix what srun names, then 'sbatch train.sbatch' again."),
    },
    Kind.NO_TASKS: {
        Standing.REFUSALS: Cell(
            Verb.FINISH, 1,
            "Hosts were refused {refusal_times} since the last progress, and MAX_RESTARTS is {limit}: the job is not "
            "requeued; {stays}."),
        Standing.UNCOUNTED: Cell(Verb.FINISH, 1, UNCOUNTED),
        Standing.WITHIN: Cell(Verb.REQUEUE, 1, "Requeue {refusals} of at most {limit} for refused hosts."),
    },
    Kind.FAILED: {
        Standing.FAILURES: Cell(
            Verb.FINISH, None,
            "That was failure {failures} of this job since its last progress, and MAX_RESTARTS is {limit}: it is not "
            "requeued; {stays}."),
        Standing.REPEATED: Cell(
            Verb.FINISH, None,
            "It failed twice with no checkpoint in between, and no other host is to blame this time: it is not "
            "requeued; {stays}."),
        Standing.UNSAVED: Cell(
            Verb.FINISH, None,
            "{unsaved_starts} in a row saved nothing, and MAX_RESTARTS is {limit}: the job is not requeued; {stays}."),
        Standing.UNCOUNTED: Cell(Verb.FINISH, None, UNCOUNTED),
        Standing.WITHIN: Cell(Verb.REQUEUE, None, "Requeue {failures} of at most {limit} after failures; {stays}."),
    },
    Kind.REFUSED: {
        Standing.REFUSALS: Cell(
            Verb.FINISH, 1,
            "Hosts were refused {refusal_times} since the last progress, and MAX_RESTARTS is {limit}: the job is not "
            "requeued. 'CHECK_NODES=false sbatch train.sbatch' trains anyway."),
        Standing.UNCOUNTED: Cell(Verb.FINISH, 1, UNCOUNTED),
        Standing.WITHIN: Cell(Verb.REQUEUE, 1, "Requeue {refusals} of at most {limit} for refused hosts."),
    },
    Kind.SURROUNDINGS: {
        Standing.WAITED: Cell(
            Verb.FINISH, 1, "The job has waited {waits}, for a day in all: it is not requeued; {stays}."),
        Standing.UNCOUNTED: Cell(Verb.FINISH, 1, UNCOUNTED),
        Standing.WITHIN: Cell(
            Verb.REQUEUE, 1, "No host is to blame, so none is excluded, and this counts as no refusal."),
    },
}  # fmt: skip


def cell_of(kind: Kind, standings: set[Standing]) -> Cell:
    """`standings`: those that hold, without WITHIN, which always does."""
    holding = {*standings, Standing.WITHIN}
    first = next(standing for standing in Standing if standing in holding and standing in TABLE[kind])
    return TABLE[kind][first]
