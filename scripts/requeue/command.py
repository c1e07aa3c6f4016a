"""The program that scripts/requeue.sh starts at each start of a job and at the end of its run.

    requeue start  --checkpoint_dir DIR --max_restarts N [--resume_from_checkpoint DIR] [--overwrite]
    requeue end    --checkpoint_dir DIR --max_restarts N --status N [--signalled] [--grace_period SECONDS]
                   [--ask_until TIME] [--no_tasks_on NODES]
    requeue doctor like end, for `mpzero doctor`; --minutes: its time limit

Messages are written to stdout and stderr, and the answer to file descriptor 3, as one line:

    start asked    the run starts with the job's flags
    start own      the run resumes from the job's last checkpoint, without the flags of its first start
    exit STATUS    the job's shell exits with this status; the next action was requested from Slurm

If this program fails, it prints no answer, and scripts/requeue.sh uses its fallback. Slurm's variables (SLURM_JOB_ID,
SLURM_ARRAY_JOB_ID, SLURM_ARRAY_TASK_ID, SLURM_RESTART_COUNT, SLURM_JOB_NODELIST, SLURM_JOB_PARTITION) identify the job.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from run_failure.merging import Failure, judge, last_failure, remove_old_starts, settle
from run_files.untrusted import NAME, printable

from requeue.checkpoint import newest_checkpoint, requested_step
from requeue.decision import (
    NO_STEP,
    NO_TASKS,
    STOPPED,
    Action,
    Event,
    decide,
    kind_of_end,
    may_be_stop,
)
from requeue.log import say, warn
from requeue.nodes import Node, is_down, nodes_of_hosts, short
from requeue.reports import (
    DOCTOR_HUNG,
    Doctor,
    Report,
    doctor_of,
    job_log,
    shared_hang,
    stop_of,
)
from requeue.return_to_queue import MOST_OF_REASON, reclaims_nodes, return_to_queue
from requeue.slurm import Silent, Slurm, retry_seconds
from requeue.state import load_state, record_of, remove_oldest, save_state
from requeue.table import USER_ERROR, Kind, Verb

NUMBER = re.compile("0|[1-9][0-9]{0,14}")
ANSWER = 3  # a file descriptor
TIMED_OUT = 124  # `mpzero doctor` exceeded its time limit, as in scripts/launch.sh
# Retry limit, in seconds, for a job without a time limit.
DAY = 86_400
# Maximum wait for missing evidence, in units of retry_seconds(): one minute by default.
EVIDENCE_TRIES = 20


@dataclass(frozen=True)
class Job:
    arguments: argparse.Namespace
    slurm: Slurm
    number: str  # SLURM_JOB_ID, as in failure.json; slurm.job differs for a job array
    restart: int
    failure: Failure | None = None  # failure of this start, if the evidence shows a failure

    @property
    def status(self) -> int:
        """The run's status. The launcher's status may reflect only the signal that it sent to the remaining ranks."""
        status = self.arguments.status
        return status if self.failure is None else self.failure.status(status)

    @property
    def folder(self) -> Path:
        return self.arguments.checkpoint_dir

    def event(self, kind: Kind, **facts) -> Event:
        return Event(
            kind=kind,
            status=self.status,
            job=self.slurm.job,
            restart=self.restart,
            max_restarts=self.arguments.max_restarts,
            newest=newest_checkpoint(self.folder),
            folder=str(self.folder),
            **facts,
        )

    @cached_property
    def leaving(self) -> Report | None:
        """The report of hosts that EC2 is about to reclaim, or None if this start of the job wrote none."""
        return stop_of(self.folder / "stop.json", self.number, self.restart)

    def nodes(self, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return nodes_of_hosts(hosts, self.slurm.nodes()) if hosts else ()


def start(job: Job) -> None:
    resume_from = job.arguments.resume_from_checkpoint
    facts = {"resume_from": resume_from, "resume_step": requested_step(resume_from)}
    # Files from the previous start may have become visible late, or the end of that start was not recorded.
    if failure := last_failure(job.folder, partial(down, job)):
        settle(job.folder, failure)
    carry_out(job, job.event(Kind.STARTED, overwrite=job.arguments.overwrite, **facts))
    remove_oldest(job.folder)
    remove_old_starts(job.folder)


def end(job: Job) -> None:
    ran = job.arguments.status not in (NO_STEP, NO_TASKS)
    kind = kind_of(job)
    # Wait for late evidence, unless Slurm is ending the job.
    until = time.monotonic() + EVIDENCE_TRIES * retry_seconds() if kind is Kind.FAILED else 0
    if ran and (failure := judge(job.folder, until, partial(down, job), job=job.number, restart=job.restart)):
        job = replace(job, failure=failure)
        kind = kind_of(job)
    carry_out_end(job, kind)


def down(job: Job, hosts: tuple[str, ...]) -> frozenset[str]:
    """Returns the hosts that Slurm reports as down."""
    try:
        states = job.slurm.partition_nodes()
    except Silent:
        return frozenset()
    broken = {name for name, node in states.items() if is_down(node.state)}
    # At the next start, these nodes are no longer part of the job.
    nodes = [*job.slurm.nodes(), *map(Node, broken)]
    return frozenset(host for host in hosts if broken & set(nodes_of_hosts((host,), nodes)))


def doctor(job: Job) -> None:
    kind = kind_of(job)
    found = doctor_of(job.folder / "doctor.json", job.number, job.restart, job_log())
    nodes = job.slurm.nodes() if found.refusals else []
    # Reports may contain hosts that are not part of this job.
    found = replace(
        found,
        refusals=tuple(refusal for refusal in found.refusals if is_one_of(refusal.host, nodes)),
        answering=tuple(host for host in found.answering if is_one_of(host, nodes)),
    )
    if kind in (Kind.USER_ERROR, Kind.STOPPED, Kind.NO_TASKS):
        carry_out_end(job, kind)
    elif found.refusals:
        refuse(job, found, nodes)
    elif job.arguments.status == DOCTOR_HUNG:
        reason = "mpzero doctor hung on a shared resource that no host identified"
        carry_out(job, job.event(Kind.SHARED_FAILURE, reason=reason))
    else:
        # The ranks failed to start; do not attribute the failure to a host.
        timed_out = job.arguments.status == TIMED_OUT
        took = f"was still running after {job.arguments.minutes} minutes" if timed_out else "ended"
        nodelist = job.slurm.nodelist
        reason = f"mpzero doctor {took}, and the reports from {nodelist} do not identify a host to exclude"
        carry_out_end(job, kind, reason)


def refuse(job: Job, found: Doctor, nodes: list[Node]) -> None:
    if shared := shared_hang(found, len(nodes)):
        reason = (
            f"{len(shared)} of {len(nodes)} hosts hang in check {shared[0].check} of mpzero doctor: "
            f"{shared[0].message}. A shared resource is at fault, e.g. a file system"
        )
        carry_out(job, job.event(Kind.SHARED_FAILURE, reason=reason))
        return
    blamed = nodes_of_hosts((refusal.host for refusal in found.refusals), nodes)
    reasons = [f"{refusal.host} is rejected: {refusal.message}" for refusal in found.refusals]
    for reason in reasons:
        warn(reason)
    carry_out(job, job.event(Kind.REFUSED, reason="; ".join(reasons), nodes=blamed))


def is_one_of(host: str, nodes: list[Node]) -> bool:
    return nodes_of_hosts((host,), nodes) != ()


def kind_of(job: Job) -> Kind:
    arguments = job.arguments
    # A run that was killed while saving or ending may have any status.
    wanted = job.status not in (USER_ERROR, STOPPED) and reclaims_nodes(
        job.slurm, may_be_stop(job.status), arguments.grace_period
    )
    stopped = arguments.signalled or wanted or job.leaving is not None
    return kind_of_end(job.status, stopped, arguments.no_tasks_on)


def carry_out_end(job: Job, kind: Kind, reason: str = "") -> None:
    """Carries out the action at the end of the run. `reason`: used if there is no failure report."""
    nodes: tuple[str, ...] = ()
    if kind is Kind.NO_TASKS:
        kind, nodes, reason = judge_tasks(job)
    if kind is Kind.FAILED and job.failure:
        reason, nodes = job.failure.verdict.reason, job.nodes(job.failure.hosts)
    elif kind is Kind.FAILED and not reason and (said := job.arguments.srun_said):
        # The first process that terminated is not necessarily at fault, so no node is excluded.
        reason = f"srun reports {printable(said, MOST_OF_REASON)}"
    elif kind is Kind.STOPPED and job.leaving:
        reason, nodes = job.leaving.reason, job.nodes(job.leaving.hosts)
    carry_out(job, job.event(kind, reason=reason, nodes=nodes))


def judge_tasks(job: Job) -> tuple[Kind, tuple[str, ...], str]:
    """Handles nodes on which srun could not start tasks. Returns (event, faulty nodes, reason)."""
    named = job.arguments.no_tasks_on
    own = os.environ.get("SLURMD_NODENAME", "")
    reason = f"srun could not start tasks on {' '.join(named)} (see above)"
    nodes = {node.name for node in job.slurm.nodes()}
    found = {node for node in nodes if short(node) in set(map(short, named))}
    # In a job of two nodes, a single failed node is at fault.
    if len(found) < 2 or 2 * len(found) < len(nodes):
        return Kind.NO_TASKS, job.nodes(named), reason
    if found == nodes - {own}:
        return Kind.NO_TASKS, (own,), f"{reason}: {own}, which runs srun, cannot reach any other node of the job"
    return Kind.SHARED_FAILURE, (), f"{reason}; these are at least half of the job's nodes"


def carry_out(job: Job, event: Event) -> None:
    action = decide_and_keep(job, event)
    for note in action.notes:
        say(note)
    if action.verb is Verb.START:
        answer("start own" if action.own else "start asked")
    elif action.verb is Verb.FINISH:
        if action.why:
            warn(action.why)
        answer(f"exit {action.status}")
    else:
        return_to_queue(job.slurm, action, job.restart, lambda: answer(f"exit {action.status}"))


def decide_and_keep(job: Job, event: Event) -> Action:
    state = load_state(job.folder, event.job)
    action = decide(state, event)
    path = record_of(job.folder, event.job)
    try:
        if action.state is not None:
            save_state(path, action.state)
    except OSError as error:
        warn(f"{path} cannot be written ({error.strerror}): only Slurm counts the restarts of this job.")
        if action.verb is Verb.START:
            # Remove the old record, which would count this start as one that saved no checkpoint.
            with contextlib.suppress(OSError):
                os.unlink(path)
        return decide(state, replace(event, kept=False))
    return action


def answer(line: str) -> None:
    os.write(ANSWER, f"{line}\n".encode())


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise ValueError(message)


def number(text: str) -> int:
    if not NUMBER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{printable(text, 60)}' is not a number")
    return int(text)


def seconds(text: str) -> int:
    """Returns GRACE_PERIOD, which may be fractional, in whole seconds; 0 if the text is not a number."""
    whole = text.partition(".")[0]
    return int(whole) if NUMBER.fullmatch(whole) else 0


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="requeue", allow_abbrev=False)
    parser.add_argument("event", choices=("start", "end", "doctor"))
    parser.add_argument("--checkpoint_dir", type=Path, required=True)
    parser.add_argument("--max_restarts", type=number, required=True)
    parser.add_argument("--resume_from_checkpoint")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--status", type=number, default=0, help="exit status of mpzero or of its launcher")
    parser.add_argument("--signalled", action="store_true", help="the job's shell received a stop signal")
    parser.add_argument("--grace_period", type=seconds, default=0)
    parser.add_argument("--minutes", type=number, default=0)
    parser.add_argument("--ask_until", type=number, help="Unix time in seconds; 0: the job has no time limit")
    parser.add_argument("--srun_said", default="", help="the first task or node that srun reported as terminated")
    parser.add_argument("--no_tasks_on", type=names, default=(), help="nodes on which srun could not start tasks")
    return parser.parse_args(arguments)


def names(text: str) -> tuple[str, ...]:
    """Returns the valid node names in a comma-separated list."""
    return tuple(dict.fromkeys(name for name in text.split(",") if NAME.fullmatch(name)))


def job_of(words: list[str]) -> Job:
    variables = os.environ
    arguments = parse_arguments(words)
    job = str(number(variables["SLURM_JOB_ID"]))
    array = variables.get("SLURM_ARRAY_JOB_ID")
    until = arguments.ask_until
    slurm = Slurm(
        job=f"{number(array)}_{number(variables['SLURM_ARRAY_TASK_ID'])}" if array else job,
        nodelist=variables.get("SLURM_JOB_NODELIST", ""),
        partition=variables.get("SLURM_JOB_PARTITION", ""),
        ask_until=0 if until is None else until or time.time() + DAY,
    )
    return Job(arguments, slurm, job, restart=number(variables.get("SLURM_RESTART_COUNT") or "0"))


def main(arguments: list[str]) -> int:
    try:
        job = job_of(arguments)
        {"start": start, "end": end, "doctor": doctor}[job.arguments.event](job)
    except Exception as error:
        warn(f"scripts/requeue: {type(error).__name__}: {error}")
        return 1
    return 0
