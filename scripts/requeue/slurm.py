"""What a job asks Slurm, and asks of it, by scontrol, squeue and sinfo."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime

from requeue.nodes import Node
from requeue.untrusted import printable

# Messages of Slurm's commands when the controller is down, restarts or is too busy; the same as in scripts/slurm.sh.
NO_ANSWER = re.compile(
    "Unable to contact|timed out|[Ss]ocket|Connection|connection|Communication|communication|Unexpected message|"
    "temporarily"
)
ATTEMPTS = 10
COUNT = re.compile(r"[0-9]{1,9}")


class Silent(Exception):
    """Slurm does not answer, or not with what was asked."""


def ask(*command: str) -> str:
    """What a command prints; it is asked again while the controller does not answer. Raises Silent, with what the
    command says on stderr, where it fails."""
    for attempt in range(ATTEMPTS):
        if attempt > 0:
            time.sleep(retry_seconds())
        result = run(command)
        if result.returncode == 0:
            return result.stdout
        if not NO_ANSWER.search(result.stderr):
            break
    raise Silent(printable(f"{result.stdout} {result.stderr}"))


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


@dataclass(frozen=True)
class JobRecord:
    running: bool  # False: Slurm is ending the job
    preempted: bool
    requeue: bool  # the job may be requeued
    required: str  # --nodelist; empty: none
    excluded: str  # --exclude; empty: none

    @staticmethod
    def parse(text: str) -> JobRecord:
        return JobRecord(
            running="JobState=RUNNING" in text,
            preempted=re.search("PreemptTime=[0-9]", text) is not None,
            requeue=field_of(text, "Requeue") == "1",
            required=field_of(text, "ReqNodeList"),
            excluded=field_of(text, "ExcNodeList"),
        )


@dataclass(frozen=True)
class Slurm:
    """Of one job. Each method but expand() raises Silent where its comment does not say otherwise."""

    job: str
    nodelist: str
    partition: str

    def job_record(self) -> JobRecord | None:
        """None where Slurm does not answer."""
        try:
            text = ask("scontrol", "show", "job", self.job)
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

    def least_nodes(self) -> int:
        text = ask("squeue", "--noheader", f"--jobs={self.job}", "--format=%D").strip()
        if not COUNT.fullmatch(text):
            raise Silent(f"squeue gives no number of nodes: {printable(text, 60)}")
        return int(text)

    def partition_nodes(self) -> list[str]:
        return ask("sinfo", "--noheader", "--Node", f"--partition={self.partition}", "--format=%N").split()

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
        """Puts the job back into the queue, where it is pending."""
        try:
            ask("scontrol", "requeue", self.job)
        except Silent as error:
            # An earlier attempt, the answer to which was lost, has put it there.
            if "pending execution" not in str(error):
                raise

    def exclude(self, nodelist: str) -> None:
        ask("scontrol", "update", f"JobId={self.job}", f"ExcNodeList={nodelist}")
