"""What mpzero's reports say about hosts: failure.json of a run, doctor.json of `mpzero doctor`.

A report that is missing, or that another run of the job wrote, blames nobody; one that is damaged neither, with a
warning. Others may have written them: what comes out are names of hosts, and text without control characters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from requeue.log import warn
from requeue.untrusted import NAME, NotReadable, parse_json, printable, read

MOST_HOSTS = 10_000


@dataclass(frozen=True)
class Failure:
    """`hosts` are blamed for the failure; there may be none."""

    hosts: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Refusal:
    host: str
    check: str  # the first that failed
    message: str


@dataclass(frozen=True)
class Doctor:
    """What `mpzero doctor` says. A doctor that hangs leaves no report, but a file doctor.json.HOST.hung of the same
    form for each host on which it hung."""

    refusals: tuple[Refusal, ...]
    hung: bool  # the doctor hung on these hosts


# Checks of what a host has to itself: what several hosts fail in is theirs, and not the job's settings. The same as
# Fault::kHost of the doctor (app/machine/finding.hpp); a report of an earlier doctor may not follow it.
CHECKS_OF_HOST = frozenset(
    [
        "gpus",
        "gpu_memory",
        "gpu_memory_errors",
        "cuda",
        "nvlink_fabric",
        "throttling",
        "temperature",
        "pcie",
        "efa_ports",
        "host",
        "clock",
        "bandwidth_inside",
    ]
)


def failure_of(path: Path, job: str, restart: int) -> Failure | None:
    """What failure.json says, where this start of the job wrote it."""
    report = load(path)
    if not is_of_start(report, job, restart):
        return None
    named = report.get("hosts", [])
    hosts = [host for host in named if is_host(host)] if isinstance(named, list) else []
    return Failure(tuple(dict.fromkeys(hosts)), printable(report.get("reason") or "") or "no reason is given")


def doctor_of(path: Path, job: str, restart: int) -> Doctor:
    """What doctor.json says, or the reports of hosts on which the doctor hung, where this start of the job wrote
    them."""
    report = load(path)
    if is_of_start(report, job, restart) or not path.parent.is_dir():
        return Doctor(tuple(refusals_of(report)), hung=False)
    names = [name for name in path.parent.iterdir() if name.name.startswith(path.name) and name.suffix == ".hung"]
    reports = [load(name) for name in sorted(names)[:MOST_HOSTS]]
    refusals = [refusal for report in reports if is_of_start(report, job, restart) for refusal in refusals_of(report)]
    return Doctor(tuple(refusals), hung=True)


def is_of_start(report: dict, job: str, restart: int) -> bool:
    return str(report.get("job", "")) == job and str(report.get("restart", 0)) == str(restart)


def refusals_of(report: dict) -> list[Refusal]:
    """The hosts that a report blames for a failure."""
    refusals = []
    for host in objects(report.get("hosts")):
        failures = [f for f in objects(host.get("findings")) if f.get("status") == "failure"]
        # What the whole job shares, such as a full checkpoint folder, is the same on another host.
        found = [f for f in failures if f.get("blame") != "job" or is_of_host(f.get("check"))]
        if found and is_host(host.get("host")):
            messages = "; ".join(str(f.get("message", "it does not say why")) for f in found)
            refusals.append(Refusal(host["host"], printable(found[0].get("check", ""), 60), printable(messages)))
    return refusals


def is_of_host(check: object) -> bool:
    return isinstance(check, str) and check in CHECKS_OF_HOST


def shared_hang(doctor: Doctor, hosts: int) -> tuple[Refusal, ...]:
    """The refusals of the check in which at least half of the job's hosts hang: what they share, such as a file
    system, is to blame, and not they. One host alone that hangs in a check of its own hardware is to blame, also where
    it is one of two."""
    if not doctor.hung:
        return ()
    for check in dict.fromkeys(refusal.check for refusal in doctor.refusals):
        hung = tuple({refusal.host: refusal for refusal in doctor.refusals if refusal.check == check}.values())
        if 2 * len(hung) >= hosts and (len(hung) > 1 or not is_of_host(check)):
            return hung
    return ()


def load(path: Path) -> dict:
    try:
        text = read(path)
        report = {} if text is None else parse_json(text)
    except NotReadable as error:
        warn(f"{error}: this report is not looked at.")
    except ValueError:
        warn(f"{path} is no JSON: this report is not looked at.")
    else:
        if isinstance(report, dict):
            return report
        warn(f"{path} is no JSON object: this report is not looked at.")
    return {}


def is_host(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def objects(value: object) -> list[dict]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
