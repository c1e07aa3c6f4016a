"""Sends a job's requests to Slurm with scontrol, squeue and sinfo."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime

from run_files.untrusted import printable

from requeue.log import warn
from requeue.nodes import Node, NodeState

# Messages of Slurm's commands if the controller is down, restarting or busy; same as in scripts/slurm.sh.
NO_ANSWER = re.compile(
    "Unable to contact|timed out|[Ss]ocket|Connection|connection|Communication|communication|Unexpected message|"
    "temporarily"
)
# Minimum number of attempts to reach the controller; see Slurm.ask_until.
ATTEMPTS = 10
LONGEST_PAUSE = 30
# SIGALRM ends this program if it does not call Slurm for this many seconds, because a system call may hang if the
# checkpoint folder's file system does not respond. scripts/requeue.sh then continues without an answer.
FOLDER_SECONDS = 300
COMMENT = re.compile(r"^ *Comment=(.*)$", re.MULTILINE)
COUNT = re.compile(r"[0-9]{1,9}")
# States of a job that has an allocation and is not ending; same as in scripts/slurm.sh. While Slurm delivers a signal,
# e.g. for a preemption, the job is SIGNALING.
RUNNING = re.compile("JobState=(RUNNING|SIGNALING|RESIZING|SUSPENDED|STOPPED|CONFIGURING)")


class Silent(Exception):
    """Slurm does not respond, or its response is invalid."""


def ask(*command: str, until: float = 0) -> str:
    """Returns the output of a command. If the controller does not respond, retries at least ATTEMPTS times and until
    `until` (Unix time in seconds). Raises Silent with the command's output if it fails."""
    pause, attempt = retry_seconds(), 0
    while True:
        signal.alarm(FOLDER_SECONDS)
        result = run(command)
        attempt += 1
        if result.returncode == 0:
            return result.stdout
        if not unanswered(result) or (attempt >= ATTEMPTS and time.time() + pause > until):
            raise Silent(printable(f"{result.stdout} {result.stderr}"))
        if attempt == ATTEMPTS:
            warn(
                f"Slurm does not respond to '{' '.join(command)}'. The job keeps its nodes; "
                f"retrying until {datetime.fromtimestamp(until):%Y-%m-%d %H:%M:%S}."
            )
        time.sleep(pause)
        if attempt >= ATTEMPTS:
            pause = min(2 * pause, LONGEST_PAUSE)


def unanswered(result: subprocess.CompletedProcess) -> bool:
    """Returns True if the command failed because Slurm did not respond, not because Slurm refused it.
    (If MUNGE is busy, the command dies of SIGPIPE.)"""
    return result.returncode == -signal.SIGPIPE or NO_ANSWER.search(result.stderr) is not None


def run(command: tuple[str, ...]) -> subprocess.CompletedProcess:
    environment = {**os.environ, "SLURM_TIME_FORMAT": "standard"}
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", env=environment
        )
    except OSError as error:
        raise Silent(f"{command[0]}: {error.strerror}") from error


def retry_seconds() -> int:
    text = os.environ.get("MPZERO_RETRY_SECONDS", "")
    return int(text) if re.fullmatch("[0-9]{1,3}", text) else 3


def field_of(record: str, name: str) -> str:
    """Returns the value of NAME=... in an scontrol record; empty if missing or unset."""
    match = re.search(rf"(?:^|\s){name}=(\S*)", record)
    return "" if match is None or match.group(1) == "(null)" else match.group(1)


def comment_of(record: str) -> str:
    """Returns the job's comment from an scontrol record: all text after "Comment=" on that line, including spaces."""
    match = COMMENT.search(record)
    text = "" if match is None else match.group(1).strip()
    return "" if text == "(null)" else text


def count_of(text: str) -> int | None:
    return int(text) if COUNT.fullmatch(text) else None


@dataclass(frozen=True)
class JobRecord:
    running: bool  # False: Slurm is ending the job
    preempted: bool
    requeue: bool  # the job may be requeued
    required: str  # --nodelist; empty: none
    excluded: str  # --exclude; empty: none
    restarts: int | None = None  # None: unknown
    tasks: int | None = None  # requested tasks, by default one per node; None: unknown
    tasks_per_node: int = 0  # --ntasks-per-node; 0: not given
    reservation: str = ""  # empty: none
    comment: str = ""  # the user's text and mpzero's addition
    features: str = ""  # --constraint; empty: none
    gres_per_node: bool = False  # requests GPUs or other generic resources per node
    gres_per_job: bool = False  # requests these resources per job, on any number of nodes (--gpus)

    @staticmethod
    def parse(text: str) -> JobRecord:
        # Remove the comment, which may look like a field.
        text, comment = COMMENT.sub("", text), comment_of(text)
        return JobRecord(
            running=RUNNING.search(text) is not None,
            preempted=re.search("PreemptTime=[0-9]", text) is not None,
            requeue=field_of(text, "Requeue") == "1",
            required=field_of(text, "ReqNodeList"),
            excluded=field_of(text, "ExcNodeList"),
            restarts=count_of(field_of(text, "Restarts")),
            tasks=count_of(field_of(text, "NumTasks")),
            tasks_per_node=count_of(field_of(text, "NtasksPerN:B:S:C").partition(":")[0]) or 0,
            reservation=field_of(text, "Reservation"),
            comment=comment,
            features=field_of(text, "Features"),
            gres_per_node="gres" in field_of(text, "TresPerNode"),
            gres_per_job="gres" in field_of(text, "TresPerJob"),
        )

    def least_nodes(self, nodes: int) -> int:
        """Returns the number of nodes that the job needs. `nodes`: number of nodes of this start. NumNodes is
        unreliable: after a requeue, it is the number of nodes that are still completing."""
        if self.tasks is None or self.tasks_per_node or self.gres_per_job:
            return nodes
        return min(nodes, self.tasks)


@dataclass(frozen=True)
class Slurm:
    """Requests for one job. All methods except expand() raise Silent unless documented otherwise."""

    job: str  # as in Slurm's commands: "7", or "7_3" for a task of a job array
    nodelist: str
    partition: str
    ask_until: float = 0  # Unix time in seconds: retry essential requests until then

    def job_record(self, patiently: bool = True) -> JobRecord | None:
        """Returns None if Slurm does not respond. `patiently`: retries until ask_until."""
        try:
            text = ask("scontrol", "show", "job", self.job, until=self.ask_until if patiently else 0)
        except Silent:
            return None
        return JobRecord.parse(text) if text.strip() else None

    def seconds_left(self) -> float:
        """Returns the seconds until the job's time limit. Also raises Silent if the job has no time limit."""
        text = ask("squeue", "--noheader", f"--jobs={self.job}", "--format=%e").strip()
        try:
            return (datetime.strptime(text, "%Y-%m-%dT%H:%M:%S") - datetime.now()).total_seconds()
        except ValueError as error:
            raise Silent(f"squeue reported no end time: {printable(text, 60)}") from error

    def nodes(self) -> list[Node]:
        """Returns the nodes of the job. If Slurm does not respond, host names are assumed to equal node names."""
        record = ""
        with contextlib.suppress(Silent):
            record = ask("scontrol", "show", "node", self.nodelist, "--oneliner")
        lines = [line for line in record.splitlines() if line.startswith("NodeName=")]
        nodes = [Node(field_of(line, "NodeName"), field_of(line, "NodeHostName")) for line in lines]
        return nodes or [Node(name) for name in self.expand(self.nodelist)]

    def expand(self, nodelist: str) -> list[str]:
        """Returns the names in a list such as p5-[1-4]; empty if scontrol cannot expand the list. Does not need the
        controller."""
        if not nodelist:
            return []
        try:
            return run(("scontrol", "show", "hostnames", nodelist)).stdout.split()
        except Silent:
            return []

    def partition_nodes(self) -> dict[str, NodeState]:
        text = ask("sinfo", "--noheader", "--Node", f"--partition={self.partition}", "--format=%N %T %G %f")
        lines = [line.split() for line in text.splitlines()]
        if not lines or any(len(words) != 4 for words in lines):
            raise Silent(f"sinfo reported no node states: {printable(text, 60)}")
        return {name: NodeState(printable(state, 30), gres, features) for name, state, gres, features in lines}

    def reservation_nodes(self, reservation: str) -> list[str]:
        record = ask("scontrol", "show", "reservation", reservation, "--oneliner")
        return self.expand(field_of(record, "Nodes"))

    def requeues_preempted_jobs(self) -> bool:
        """Returns True if Slurm itself requeues preempted jobs of this partition when they end, as Slurm 24.05
        and later do for jobs with GraceTime. Returns False if Slurm does not respond, or if preemption depends on a
        QOS, whose mode is stored only in Slurm's accounting database: Slurm may then start such a job once more after
        its end."""
        try:
            configuration = ask("scontrol", "show", "config")
            version = re.search(r"SLURM_VERSION *= *([0-9]{1,9})\.([0-9]{1,9})", configuration)
            if version is None or (int(version.group(1)), int(version.group(2))) < (24, 5):
                return False
            if not re.search("PreemptType *= *preempt/partition_prio", configuration):
                return False
            partition = ask("scontrol", "show", "partition", self.partition, "--oneliner")
        except Silent:
            return False
        return re.search("PreemptMode=[A-Z,]*REQUEUE", partition) is not None

    def requeue(self) -> None:
        """Requeues the job. "Incomplete" leaves a cancelled job unchanged, which Slurm would otherwise start again.
        Slurm reports success in both cases."""
        try:
            ask("scontrol", "requeue", "Incomplete", self.job, until=self.ask_until)
        except Silent as error:
            # An earlier attempt, whose response was lost, has already requeued the job.
            if "pending execution" not in str(error):
                raise

    def exclude(self, nodelist: str) -> None:
        """Sets the excluded nodes of the pending job."""
        ask("scontrol", "update", f"JobId={self.job}", f"ExcNodeList={nodelist}")

    def comment(self, text: str) -> None:
        """Sets the comment of the pending job, which `scontrol show job` and `squeue --format=%k` show."""
        ask("scontrol", "update", f"JobId={self.job}", f"Comment={text}")

    def delay(self, minutes: int) -> None:
        """Delays the pending job by at least `minutes` minutes."""
        ask("scontrol", "update", f"JobId={self.job}", f"StartTime=now+{minutes}minutes")
