"""What a job asks Slurm, and asks of it, by scontrol, squeue and sinfo."""

from __future__ import annotations

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

# Messages of Slurm's commands when the controller is down, restarts or is too busy; the same as in scripts/slurm.sh.
NO_ANSWER = re.compile(
    "Unable to contact|timed out|[Ss]ocket|Connection|connection|Communication|communication|Unexpected message|"
    "temporarily"
)
# A controller that does not answer is asked so often in any case, and for longer where Slurm.ask_until says so.
ATTEMPTS = 10
LONGEST_PAUSE = 30
# The kernel ends this program if nothing has been asked of Slurm for so many seconds: a system call does not return
# where the file system of the checkpoint folder does not respond. scripts/requeue.sh then goes on without an answer.
FOLDER_SECONDS = 300
COMMENT = re.compile(r"^ *Comment=(.*)$", re.MULTILINE)
COUNT = re.compile(r"[0-9]{1,9}")
# The states of a job that has its nodes and is not being ended; the same as in scripts/slurm.sh. While Slurm delivers a
# signal, as it does to a job that it preempts, the job is SIGNALING.
RUNNING = re.compile("JobState=(RUNNING|SIGNALING|RESIZING|SUSPENDED|STOPPED|CONFIGURING)")


class Silent(Exception):
    """Slurm does not answer, or not with what was asked."""


def ask(*command: str, until: float = 0) -> str:
    """What a command prints; it is asked again while the controller does not answer, ATTEMPTS times and until that time
    (seconds since 1970). Raises Silent, with what the command says on stderr, where it fails."""
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
                f"Slurm does not answer '{' '.join(command)}'. The job keeps its nodes meanwhile, so Slurm is asked "
                f"again until {datetime.fromtimestamp(until):%Y-%m-%d %H:%M:%S}."
            )
        time.sleep(pause)
        if attempt >= ATTEMPTS:
            pause = min(2 * pause, LONGEST_PAUSE)


def unanswered(result: subprocess.CompletedProcess) -> bool:
    """The command got no answer, as opposed to a refusal. Munge, where it is too busy, ends it by SIGPIPE."""
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
    """The value of NAME=... in a record of scontrol's; empty where it is not there or has none."""
    match = re.search(rf"(?:^|\s){name}=(\S*)", record)
    return "" if match is None or match.group(1) == "(null)" else match.group(1)


def comment_of(record: str) -> str:
    """It may have spaces, and ends with its line."""
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
    restarts: int | None = None  # None: not known
    tasks: int | None = None  # that the job asks for; one a node where it says nothing. None: not known
    tasks_per_node: int = 0  # --ntasks-per-node; 0: not given
    reservation: str = ""  # empty: none
    comment: str = ""  # the user's own, and what mpzero has added
    features: str = ""  # --constraint; empty: none
    gres_per_node: bool = False  # it asks for GPUs, or other generic resources, of each node
    gres_per_job: bool = False  # it asks for them in all, on as many nodes as that takes (--gpus)

    @staticmethod
    def parse(text: str) -> JobRecord:
        # A comment may read like a field.
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
        """The nodes that the job needs, of which this start had so many. NumNodes does not tell: of a job that was just
        put back into the queue it counts the nodes that have not yet ended their part of it."""
        if self.tasks is None or self.tasks_per_node or self.gres_per_job:
            return nodes
        return min(nodes, self.tasks)


@dataclass(frozen=True)
class Slurm:
    """Of one job. Each method but expand() raises Silent where its comment does not say otherwise."""

    job: str  # as Slurm's commands take it: "7", and "7_3" for a task of a job array
    nodelist: str
    partition: str
    ask_until: float = 0  # seconds since 1970: what decides about the job is asked again until then

    def job_record(self, patiently: bool = True) -> JobRecord | None:
        """None where Slurm does not answer. `patiently`: until ask_until."""
        try:
            text = ask("scontrol", "show", "job", self.job, until=self.ask_until if patiently else 0)
        except Silent:
            return None
        return JobRecord.parse(text) if text.strip() else None

    def seconds_left(self) -> float:
        """Until the job's time limit; Silent, too, where it has none."""
        text = ask("squeue", "--noheader", f"--jobs={self.job}", "--format=%e").strip()
        try:
            return (datetime.strptime(text, "%Y-%m-%dT%H:%M:%S") - datetime.now()).total_seconds()
        except ValueError as error:
            raise Silent(f"squeue gives no time: {printable(text, 60)}") from error

    def nodes(self) -> list[Node]:
        """Those of the job. Where Slurm does not answer, its nodes are taken to have the names of their hosts."""
        try:
            record = ask("scontrol", "show", "node", self.nodelist, "--oneliner")
        except Silent:
            return [Node(name) for name in self.expand(self.nodelist)]
        lines = [line for line in record.splitlines() if line.startswith("NodeName=")]
        nodes = [Node(field_of(line, "NodeName"), field_of(line, "NodeHostName")) for line in lines]
        return nodes or [Node(name) for name in self.expand(self.nodelist)]

    def expand(self, nodelist: str) -> list[str]:
        """The names in a list such as p5-[1-4]; none where scontrol cannot tell. (It does not ask the controller.)"""
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
            raise Silent(f"sinfo gives no states of nodes: {printable(text, 60)}")
        return {name: NodeState(printable(state, 30), gres, features) for name, state, gres, features in lines}

    def reservation_nodes(self, reservation: str) -> list[str]:
        record = ask("scontrol", "show", "reservation", reservation, "--oneliner")
        return self.expand(field_of(record, "Nodes"))

    def requeues_preempted_jobs(self) -> bool:
        """Whether Slurm requeues a preempted job of this partition by itself when it has ended: 24.05 and later do so
        with a job that got time to end. False where Slurm does not answer, and where a QOS, whose mode only Slurm's
        accounting tells, decides about preemption: such a job may start once more after its end."""
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
        """Puts the job back into the queue, where it is pending. A job that is no longer running, since it was
        cancelled meanwhile, stays as it is: without "Incomplete" Slurm would start it again. Slurm reports neither."""
        try:
            ask("scontrol", "requeue", "Incomplete", self.job, until=self.ask_until)
        except Silent as error:
            # An earlier attempt, the answer to which was lost, has put it there.
            if "pending execution" not in str(error):
                raise

    def exclude(self, nodelist: str) -> None:
        """Of the pending job."""
        ask("scontrol", "update", f"JobId={self.job}", f"ExcNodeList={nodelist}")

    def comment(self, text: str) -> None:
        """Of the pending job; `scontrol show job` and `squeue --format=%k` show it."""
        ask("scontrol", "update", f"JobId={self.job}", f"Comment={text}")

    def delay(self, minutes: int) -> None:
        """The pending job starts no earlier than in so many minutes."""
        ask("scontrol", "update", f"JobId={self.job}", f"StartTime=now+{minutes}minutes")
