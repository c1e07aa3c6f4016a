"""Reads mpzero's reports about hosts: stop.json of a run, doctor.json of `mpzero doctor`, and the log lines of a hung
doctor.

A report that is missing, damaged (with a warning) or from another start of the job is ignored. Other users may have
written reports: the results contain only host names and text without control characters.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from run_failure.evidence import host_of, list_of, load, objects_of
from run_files.regular_files import SMALL_BYTES
from run_files.untrusted import NAME, printable

MOST_HOSTS = 10_000


@dataclass(frozen=True)
class Report:
    """The reason why a run ended. `hosts`: faulty or reclaimed hosts; may be empty."""

    hosts: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Refusal:
    host: str
    check: str  # the first failed check
    message: str


@dataclass(frozen=True)
class Doctor:
    """Results of `mpzero doctor`. If a check hangs, the doctor writes a line to the job's log instead of a report and,
    for each hung host, a file doctor.json.HOST.hung in the format of the report."""

    refusals: tuple[Refusal, ...]
    hung: bool  # True if the doctor hung on these hosts
    answering: tuple[str, ...] = ()  # hosts that could write to the report's folder while other hosts hung


# Exit status and log line of a doctor that its watchdog terminated (app/doctor/hang_watch.hpp).
DOCTOR_HUNG = 122
WATCH = re.compile(
    rf"^(?: *[0-9]+: )?mpzero: doctor: ({NAME.pattern}) (hangs|responds) in ([a-z_]{{1,60}}) "
    r"\(job ([0-9]+), restart ([0-9]+)\): (.*)$",
    re.MULTILINE,
)

# Checks of a folder that all hosts share, as in the doctor's Fault::kFolder.
CHECKS_OF_FOLDER = frozenset(["checkpoint_space", "checkpoint_write", "report"])


def stop_of(path: Path, job: str, restart: int) -> Report | None:
    """Returns the report that EC2 will soon reclaim hosts (stop.json), or None if this start of the job wrote none."""
    report = load(path)
    if not is_of_start(report, job, restart):
        return None
    hosts = filter(None, map(host_of, list_of(report.get("hosts"))))
    return Report(tuple(dict.fromkeys(hosts)), printable(report.get("reason") or "") or "no reason given")


def doctor_of(path: Path, job: str, restart: int, log: str) -> Doctor:
    """Returns the doctor's results for this start of the job: from lines in the job's log, from doctor.json, or from
    reports by hosts on which the doctor hung. The log takes precedence, because the folder of the reports may hang."""
    watches = [match.groups() for match in WATCH.finditer(log)]
    watches = [watch for watch in watches if watch[3:5] == (job, str(restart))][:MOST_HOSTS]
    refusals = [Refusal(host, check, printable(text)) for host, verb, check, _, _, text in watches if verb == "hangs"]
    if refusals:
        answering = tuple(host for host, verb, *_ in watches if verb == "responds")
        return Doctor(tuple(dict.fromkeys(refusals)), hung=True, answering=answering)
    report = load(path)
    if is_of_start(report, job, restart) or not path.parent.is_dir():
        return Doctor(tuple(refusals_of(report)), hung=False)
    hung = [refusal for report in reports_of_hosts(path, ".hung", job, restart) for refusal in refusals_of(report)]
    answers = reports_of_hosts(path, ".answers", job, restart)
    answering = (host_of(host.get("host")) for report in answers for host in objects_of(report.get("hosts")))
    return Doctor(tuple(hung), hung=True, answering=tuple(filter(None, answering)))


def reports_of_hosts(path: Path, suffix: str, job: str, restart: int) -> list[dict]:
    names = [name for name in path.parent.iterdir() if name.name.startswith(path.name) and name.suffix == suffix]
    reports = [load(name) for name in sorted(names)[:MOST_HOSTS]]
    return [report for report in reports if is_of_start(report, job, restart)]


def job_log() -> str:
    """Returns the end of the job's error log, which is this program's stderr; empty if it is not a regular file."""
    try:
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return ""
        with open("/proc/self/fd/2", "rb") as log:
            log.seek(max(0, os.fstat(2).st_size - SMALL_BYTES))
            return log.read(SMALL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def is_of_start(report: dict, job: str, restart: int) -> bool:
    return str(report.get("job", "")) == job and str(report.get("restart", 0)) == str(restart)


def refusals_of(report: dict) -> list[Refusal]:
    """Returns the hosts to which a report attributes a failure."""
    refusals = []
    for host in objects_of(report.get("hosts")):
        failures = [f for f in objects_of(host.get("findings")) if f.get("status") == "failure"]
        # Resources of the whole job, such as a full checkpoint folder, would also fail on other hosts.
        found = [f for f in failures if f.get("blame") != "job"]
        if found and host_of(host.get("host")):
            messages = "; ".join(str(f.get("message", "no reason given")) for f in found)
            refusals.append(Refusal(host["host"], printable(found[0].get("check", ""), 60), printable(messages)))
    return refusals


def shared_hang(doctor: Doctor, hosts: int) -> tuple[Refusal, ...]:
    """Returns the refusals of a check that hangs on at least half of the job's hosts because of a shared resource, such
    as a file system. If one of two hosts hangs, that host is at fault if the resource is local (GPUs, ports,
    libraries), or is a folder to which the other host can write."""
    if not doctor.hung:
        return ()
    for check in dict.fromkeys(refusal.check for refusal in doctor.refusals):
        hung = tuple({refusal.host: refusal for refusal in doctor.refusals if refusal.check == check}.values())
        own = check not in CHECKS_OF_FOLDER or set(doctor.answering) - {hung[0].host}
        if 2 * len(hung) >= hosts and not (len(hung) == 1 and own):
            return hung
    return ()
