"""Requeues a job and excludes nodes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from datetime import datetime

from run_files.untrusted import printable

from requeue.decision import Action
from requeue.log import say, warn, write
from requeue.nodes import Placement, suitable, why_not_excluded, why_waiting
from requeue.slurm import JobRecord, Silent, Slurm

# Slurm may send the warning signal up to a minute earlier than --signal specifies.
EARLY_SECONDS = 60
# Prefix of mpzero's text in a job's comment.
MARK = "mpzero "
MOST_OF_REASON = 300


def reclaims_nodes(slurm: Slurm, may_be_stop: bool, grace_seconds: int) -> bool:
    """Returns True if Slurm preempts the job or, with `may_be_stop`, if Slurm is ending the job or will soon end it at
    its time limit. Returns False if Slurm does not respond."""
    record = slurm.job_record()
    if record is None or record.preempted or not may_be_stop:
        return record is not None and record.preempted
    try:
        return not record.running or slurm.seconds_left() <= grace_seconds + EARLY_SECONDS
    except Silent:
        return False


def return_to_queue(slurm: Slurm, action: Action, restart: int, done: Callable[[], None]) -> None:
    """`restart`: number of earlier starts of the job. Calls `done` as soon as the outcome is certain."""
    # If the job was cancelled or preempted or is out of time, Slurm is already ending it. If Slurm does not respond,
    # request the requeue anyway.
    record = slurm.job_record()
    if record is not None and not record.running:
        # The same job resumes only if Slurm has requeued it.
        has_ended = was_requeued(record, restart) is False
        why = action.why.replace("the same job", "the same sbatch command") if has_ended else action.why
        say(f"{why} {what_slurm_does(slurm, record, restart)}")
        done()
        return
    preempted = record is not None and record.preempted and record.requeue
    # With an explicit request, Slurm would requeue the job twice: immediately, and when the job ends.
    if preempted and slurm.requeues_preempted_jobs():
        say(f"{action.why} Slurm requeues the job when it ends.")
        done()
        return
    say(action.why)
    try:
        slurm.requeue()
    except Silent as error:
        warn(f"Slurm did not requeue the job ({error}); 'sbatch train.sbatch' resumes from the last checkpoint.")
        done()
        return
    done()
    # Slurm updates only pending jobs. The job is now pending, and its processes may run until KillWait.
    record = slurm.job_record(patiently=False)
    if record is not None and was_requeued(record, restart) is False:
        say("Slurm has already ended this job (scancel or the time limit); not requeuing the job.")
        return
    if action.minutes:
        delay(slurm, record, action)
    if action.nodes:
        exclude(slurm, record, action)


def was_requeued(record: JobRecord, restart: int) -> bool | None:
    """Returns True if Slurm has requeued the job, which immediately increments its restart count; None: unknown."""
    return None if record.restarts is None else record.restarts > restart


def what_slurm_does(slurm: Slurm, record: JobRecord, restart: int) -> str:
    """Describes the outcome of a job that Slurm is ending."""
    requeued = was_requeued(record, restart)
    if requeued is None:
        return f"Slurm is ending this job; 'squeue --jobs={slurm.job}' shows whether the job is still in the queue."
    if requeued:
        return "Slurm has requeued this job, which will start again."
    return "Slurm has ended this job (scancel or the time limit): the job will not be requeued."


def delay(slurm: Slurm, record: JobRecord | None, action: Action) -> None:
    minutes = action.minutes
    try:
        slurm.delay(minutes)
    except Silent as error:
        complain(error, f"Slurm did not delay the job by {minutes} minutes; the job may start earlier.")
        return
    say(f"The job will start again in {minutes} minutes at the earliest.")
    earlier = f"'scontrol update JobId={slurm.job} StartTime=now' starts the job earlier"
    explain(slurm, record, f"the job waits for {minutes} minutes{since(action)}; {earlier}.")


def exclude(slurm: Slurm, record: JobRecord | None, action: Action) -> None:
    """Excludes the faulty nodes from the pending job, if enough other nodes remain."""
    names = " ".join(action.nodes)
    try:
        if record is None:
            raise Silent("")
        place = placement(slurm, record)
    except Silent as error:
        complain(error, f"cannot exclude {names}, because Slurm does not respond; the job may start on them again.")
        return
    why_not = why_waiting(place) or why_not_excluded(place, action.nodes, record.required)
    if why_not:
        warn(why_not)
        explain(slurm, record, why_not)
        return
    nodelist = ",".join([record.excluded, *action.nodes] if record.excluded else action.nodes)
    try:
        slurm.exclude(nodelist)
    except Silent as error:
        complain(error, f"Slurm did not exclude {nodelist}; the job may start on them again.")
        return
    back = f"To allow these nodes again, run 'scontrol update JobId={slurm.job} ExcNodeList={record.excluded}'."
    say(f"Excluded from now on: {nodelist}. {back}")
    explain(slurm, record, f"requeued without {names}{since(action)}. {back}")


def placement(slurm: Slurm, record: JobRecord) -> Placement:
    states = slurm.partition_nodes()
    if record.reservation:
        reserved = set(slurm.reservation_nodes(record.reservation))
        states = {name: state for name, state in states.items() if name in reserved}
    own = slurm.expand(slurm.nodelist)
    fitting = suitable(states, record.features, record.gres_per_node or record.gres_per_job, own)
    return Placement(
        required=frozenset(slurm.expand(record.required)),
        excluded=frozenset(slurm.expand(record.excluded)),
        states={name: node.state for name, node in fitting.items()},
        least=record.least_nodes(len(own)),
        partition=slurm.partition,
        reservation=record.reservation,
    )


def since(action: Action) -> str:
    return f"; reason: {printable(action.reason, MOST_OF_REASON)}" if action.reason else ""


def explain(slurm: Slurm, record: JobRecord | None, text: str) -> None:
    """Adds the reason why the job is pending to its comment, after the user's text. The log contains the same facts,
    because Slurm may refuse the comment."""
    own = "" if record is None else record.comment.partition(MARK)[0].rstrip("; ")
    comment = f"{MARK}{datetime.now():%Y-%m-%d %H:%M}: {text}"
    with contextlib.suppress(Silent):
        slurm.comment(f"{own}; {comment}" if own else comment)


def complain(error: Silent, text: str) -> None:
    """Prints Slurm's own message and a warning."""
    if str(error):
        write(sys.stderr, str(error))
    warn(text)
