"""The actions of a Slurm job by event and by condition of its record (docs/stopping-and-failures.md). decision.py
determines the conditions and fills in the sentences."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

USER_ERROR = 2  # exit status, as in base/error.hpp


class Kind(Enum):
    """An event at a start of a job or at the end of its run."""

    STARTED = "a start of the job"
    USER_ERROR = "a user error"
    STOPPED = "Slurm, EC2 or the user stopped the run"
    NO_STEP = "srun failed to create the job step three times"
    NO_TASKS = "srun could not start tasks on some nodes"
    FAILED = "a rank was lost, got stuck, or failed"
    REFUSED = "mpzero doctor rejected hosts, or hung on them"
    SHARED_FAILURE = "on at least half of the nodes, a check of mpzero doctor hung or srun could not start tasks"


class Standing(Enum):
    """A condition of the job's record after counting the event. If several hold, the first one with a cell for the
    event determines the action."""

    UNKNOWN = "the job uses --overwrite or --resume_from_checkpoint, and its record is missing or damaged"
    FAILURES = "more than MAX_RESTARTS failures without a checkpoint of a later step"
    REPEATED = "a second failure since the last checkpoint, not attributed to another host"
    UNSAVED = "more than MAX_RESTARTS consecutive starts that saved no checkpoint"
    REFUSALS = "more than MAX_RESTARTS refusals without a checkpoint of a later step"
    WAITED = "a shared resource has been unavailable for a day"
    UNCOUNTED = "the record cannot be written, and Slurm has already restarted the job MAX_RESTARTS times"
    WITHIN = "none of the above"


class Verb(Enum):
    START = "starts"  # the run starts
    FINISH = "ends"  # the job ends for good
    REQUEUE = "is requeued"  # the job is requeued without the faulty nodes


@dataclass(frozen=True)
class Cell:
    verb: Verb
    status: int | None = None  # exit status of the job's shell; None: status of the event
    why: str = ""  # one sentence; decision.py fills in the placeholders


UNCOUNTED = (
    "Slurm has started this job {start_times}, its record cannot be written, and MAX_RESTARTS is "
    "{limit}: not requeuing the job; {stays}."
)

NOT_KNOWN = (
    "A new start with --resume_from_checkpoint or --overwrite could discard checkpoints of this job, because its "
    "record is missing or damaged: the job ends. 'sbatch train.sbatch' without these flags resumes from the last "
    "checkpoint; with these flags, it starts over."
)

REFUSED = {
    Standing.REFUSALS: Cell(
        Verb.FINISH, 1,
        "Hosts have been rejected {refusal_times} since the job last made progress, and MAX_RESTARTS is {limit}: not "
        "requeuing the job; {stays}. CHECK_NODES=false skips 'mpzero doctor'."),
    Standing.UNCOUNTED: Cell(Verb.FINISH, 1, UNCOUNTED),
    Standing.WITHIN: Cell(Verb.REQUEUE, 1, "Hosts were rejected: requeue {refusals} of at most {limit}."),
}  # fmt: skip

# A condition without a cell does not affect the event.
TABLE: dict[Kind, dict[Standing, Cell]] = {
    Kind.STARTED: {
        Standing.UNKNOWN: Cell(Verb.FINISH, 1, NOT_KNOWN),
        Standing.UNSAVED: Cell(
            Verb.FINISH, 1,
            "Slurm has ended this job {unsaved_times} in a row before a checkpoint was saved; not requeuing the job. "
            "Reduce CHECKPOINT_FREQ, or check the nodes (sacct -j {job})."),
        Standing.WITHIN: Cell(Verb.START, 0),
    },
    Kind.USER_ERROR: {
        Standing.WITHIN: Cell(Verb.FINISH),
    },
    Kind.STOPPED: {
        Standing.UNSAVED: Cell(
            Verb.FINISH, 1,
            "The job was stopped {unsaved_times} in a row before a checkpoint was saved; not requeuing the job. "
            "Increase --time, or save more often (CHECKPOINT_FREQ)."),
        Standing.UNCOUNTED: Cell(Verb.FINISH, 1, UNCOUNTED),
        Standing.WITHIN: Cell(Verb.REQUEUE, None, "The run was stopped; {stays}."),
    },
    Kind.NO_STEP: {
        Standing.WITHIN: Cell(
            Verb.FINISH, USER_ERROR,
            "Slurm did not create the job step (see srun's messages above). The ranks have not run, so the "
            "job is not requeued; fix the problem and run 'sbatch train.sbatch' again."),
    },
    Kind.NO_TASKS: REFUSED,
    Kind.FAILED: {
        Standing.FAILURES: Cell(
            Verb.FINISH, None,
            "That was failure {failures} of this job since it last made progress, and MAX_RESTARTS is {limit}: "
            "not requeuing the job; {stays}."),
        Standing.REPEATED: Cell(
            Verb.FINISH, None,
            "The job failed twice without a checkpoint in between, and the second failure is not attributed to another "
            "host: not requeuing the job; {stays}."),
        Standing.UNSAVED: Cell(
            Verb.FINISH, None,
            "{unsaved_starts} in a row saved no checkpoint (MAX_RESTARTS={limit}): not requeuing the job; {stays}."),
        Standing.UNCOUNTED: Cell(Verb.FINISH, None, UNCOUNTED),
        Standing.WITHIN: Cell(Verb.REQUEUE, None, "The run failed: requeue {failures} of at most {limit}; {stays}."),
    },
    Kind.REFUSED: REFUSED,
    Kind.SHARED_FAILURE: {
        Standing.WAITED: Cell(
            Verb.FINISH, 1,
            "The job has waited for the shared resource {waits} (one day in total): not requeuing the job; {stays}."),
        Standing.UNCOUNTED: Cell(Verb.FINISH, 1, UNCOUNTED),
        Standing.WITHIN: Cell(
            Verb.REQUEUE, 1,
            "A shared resource failed: no hosts are excluded, and this requeue does not count as a refusal."),
    },
}  # fmt: skip


def cell_of(kind: Kind, standings: set[Standing]) -> Cell:
    """Returns the cell that determines the action. `standings`: the conditions that hold, except WITHIN, which always
    holds."""
    holding = {*standings, Standing.WITHIN}
    first = next(standing for standing in Standing if standing in holding and standing in TABLE[kind])
    return TABLE[kind][first]
