"""Puts a job back into Slurm's queue, and keeps it off nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from requeue.decision import Action
from requeue.log import say, warn, write
from requeue.nodes import Placement, why_not_excluded
from requeue.slurm import JobRecord, Silent, Slurm

# Slurm's warning signal comes up to a minute earlier than --signal says.
EARLY_SECONDS = 60


def wants_the_nodes(slurm: Slurm, grace_seconds: int) -> bool:
    """Whether Slurm is ending the job, preempts it, or is about to end it for its time limit. False where Slurm does
    not answer."""
    record = slurm.job_record()
    if record is None:
        return False
    if not record.running or record.preempted:
        return True
    try:
        return slurm.seconds_left() <= grace_seconds + EARLY_SECONDS
    except Silent:
        return False


def preempts(slurm: Slurm) -> bool:
    """Whether Slurm preempts the job. False where Slurm does not answer."""
    record = slurm.job_record()
    return record is not None and record.preempted


def return_to_queue(slurm: Slurm, action: Action, restart: int, done: Callable[[], None]) -> None:
    """`restart`: how often Slurm has started the job before. Calls `done` as soon as it is certain what becomes of the
    job."""
    # A job that was cancelled, preempted to its end or that ran out of time is being ended by Slurm: what Slurm decided
    # holds. Where Slurm does not say, it is asked to requeue the job all the same.
    record = slurm.job_record()
    if record is not None and not record.running:
        say(f"{action.why} Slurm is ending this job: it is left to Slurm whether it starts again.")
        done()
        return
    preempted = record is not None and record.preempted and record.requeue
    # Asked for a requeue as well, Slurm would do it twice: now, and again when the job has ended.
    if preempted and slurm.requeues_preempted_jobs():
        say(f"{action.why} Slurm puts it back into the queue when it has ended.")
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
    # Slurm does not change a running job. This one is pending now, and its processes have until KillWait.
    record = slurm.job_record(patiently=False)
    if record is not None and record.restarts is not None and record.restarts <= restart:
        say("Slurm has ended this job meanwhile (scancel, or its time limit): it is not requeued.")
        return
    if action.minutes:
        delay(slurm, action.minutes)
    if action.nodes:
        exclude(slurm, record, action.nodes)


def delay(slurm: Slurm, minutes: int) -> None:
    try:
        slurm.delay(minutes)
    except Silent as error:
        tell(error)
        warn(f"Slurm did not let the job wait for {minutes} minutes; it may start earlier.")
    else:
        say(f"It starts again in {minutes} minutes at the earliest.")


def exclude(slurm: Slurm, record: JobRecord | None, nodes: tuple[str, ...]) -> None:
    """Keeps the pending job off these nodes, where enough others are left."""
    names = " ".join(nodes)
    try:
        if record is None:
            raise Silent("")
        place = Placement(
            required=frozenset(slurm.expand(record.required)),
            excluded=frozenset(slurm.expand(record.excluded)),
            least=record.least_nodes(len(slurm.expand(slurm.nodelist))),
            partition=frozenset(slurm.partition_nodes()),
        )
    except Silent as error:
        tell(error)
        warn(f"{names} should be left out, but Slurm does not answer; the job may start there again.")
        return
    why_not = why_not_excluded(place, nodes, slurm.partition, record.required)
    if why_not:
        warn(why_not)
        return
    nodelist = ",".join([record.excluded, *nodes] if record.excluded else nodes)
    try:
        slurm.exclude(nodelist)
    except Silent as error:
        tell(error)
        warn(f"Slurm did not exclude {nodelist}; the job may start there again.")
    else:
        say(f"Left out from now on: {nodelist}.")


def tell(error: Silent) -> None:
    """Slurm's own words."""
    if str(error):
        write(sys.stderr, str(error))
