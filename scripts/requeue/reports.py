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
    message: str


def failure_of(path: Path, job: str, restart: int) -> Failure | None:
    """What failure.json says, where this start of the job wrote it."""
    report = load(path)
    if str(report.get("job", "")) != job or str(report.get("restart", 0)) != str(restart):
        return None
    named = report.get("hosts", [])
    hosts = [host for host in named if is_host(host)] if isinstance(named, list) else []
    return Failure(tuple(dict.fromkeys(hosts)), printable(report.get("reason") or "") or "no reason is given")


def refusals_of(path: Path) -> list[Refusal]:
    """The hosts that doctor.json blames for a failure. A doctor that hangs does not write it, but leaves a file
    doctor.json.HOST.hung of the same form for each host on which it hung."""
    refusals = []
    for host in objects(load_doctor(path).get("hosts")):
        failures = [f for f in objects(host.get("findings")) if f.get("status") == "failure"]
        # What the whole job shares, such as a full checkpoint folder, is the same on another host.
        found = [str(f.get("message", "it does not say why")) for f in failures if f.get("blame") != "job"]
        if found and is_host(host.get("host")):
            refusals.append(Refusal(host["host"], printable("; ".join(found))))
    return refusals


def load_doctor(path: Path) -> dict:
    report = load(path)
    if report or not path.parent.is_dir():
        return report
    names = [name for name in path.parent.iterdir() if name.name.startswith(path.name) and name.suffix == ".hung"]
    return {"hosts": [host for name in sorted(names)[:MOST_HOSTS] for host in objects(load(name).get("hosts"))]}


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
