"""Turns the evidence of a checkpoint folder's latest start into failure.json, the user's report and the exit status."""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from run_files.regular_files import NotReadable, read_text
from run_files.replacing import replace_text
from run_files.untrusted import NAME, printable
from run_files.values import whole

from run_failure.evidence import START, Evidence, Record, listed_ranks, load, load_rank, read_evidence
from run_failure.verdict import Verdict, some, verdict_of, where

# Exit statuses, as in base/error.hpp.
FAILURE, USER_ERROR = 1, 2
MOST_STARTS = 20
MOST_PLACES = 16
PAUSE = 0.5
# Seconds. A start time further in the future indicates a wrong clock.
FUTURE = 3600


@dataclass(frozen=True)
class Failure:
    """The evidence and the verdict of a failed start."""

    evidence: Evidence
    verdict: Verdict

    @property
    def hosts(self) -> tuple[str, ...]:
        records = (self.evidence.records[rank] for rank in self.verdict.ranks if rank < len(self.evidence.records))
        return tuple(dict.fromkeys(record.host for record in records if record.host))

    def status(self, status: int) -> int:
        """The job's exit status. `status`: the launcher's exit status, which may only reflect the signal that it sent
        to the remaining ranks, also if they took it for a request to stop."""
        if self.verdict.user_error:
            return USER_ERROR
        return status if status in (0, USER_ERROR) else FAILURE


def newest_start(
    folder: Path, since: float = 0, job: str | None = None, restart: int | None = None, until: float = 0
) -> str | None:
    """The latest start of this job in this checkpoint folder; None if it began before `since` (Unix time in seconds).
    Waits for a start until `until` (time.monotonic()), because a file system may show its folder late."""

    def look() -> str | None:
        for start in reversed(starts_of(folder)):
            if time_of(start) < since - 1:
                continue
            facts = facts_of(places_of(folder, start))
            if job in (None, str(facts.get("job"))) and restart in (None, facts.get("restart")):
                return start
        return None

    while (start := look()) is None and time.monotonic() < until:
        time.sleep(PAUSE)
    return start


def facts_of(places: list[Path]) -> dict:
    """Facts of a start, which all of its ranks write identically."""
    facts = [load(place / "start.json") for place in places] + [load_rank(places, min(listed_ranks(places), default=0))]
    return next(filter(None, facts), {})


def starts_of(folder: Path) -> list[str]:
    """The names of all starts, oldest first; those of a wrong clock count as the oldest."""
    own, *others = places_of(folder)
    names = set(names_in(own))
    for place in others:
        names.update(name for name in names_in(place) if name not in names and belongs(place / name, folder))
    return sorted(names, key=lambda name: (not is_future(name), name))


def names_in(place: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [path.name for path in place.iterdir() if START.fullmatch(path.name)]
    return []


def places_of(folder: Path, start: str = "") -> list[Path]:
    """Folders to which ranks write evidence: the checkpoint folder or, if it is not writable, a folder from the ranks'
    environment, which other runs share (app/watchdog/watchdog.cpp)."""
    logs = [os.environ.get(name) for name in ("MPZERO_LOG_DIR", "LOG_DIR", "TMPDIR")] + ["/tmp"]
    folders = dict.fromkeys([folder, *(Path(log) for log in logs if log)])
    own, *others = (place / "failures" / start for place in folders)
    # The name of a start is unique, so a start of the same name in the checkpoint folder identifies the run.
    return [own, *(place for place in others if not start or belongs(place, folder, own.is_dir()))]


def belongs(place: Path, folder: Path, is_named: bool = False) -> bool:
    """Returns True if `place` belongs to the run with this checkpoint folder. `is_named`: True if the checkpoint folder
    contains a start of the same name."""
    with contextlib.suppress(OSError, ValueError):
        # Any user can write false evidence to /tmp.
        if place.stat().st_uid not in (os.geteuid(), folder.stat().st_uid if folder.exists() else None):
            return False
        if is_named:
            return True
        named = facts_of([place]).get("checkpoint_dir")
        return isinstance(named, str) and os.path.realpath(named) == os.path.realpath(folder)
    return False


def time_of(start: str) -> float:
    try:
        return calendar.timegm(time.strptime(start[:16], "%Y%m%dT%H%M%SZ"))
    except ValueError:
        return 0.0


def is_future(start: str) -> bool:
    return time_of(start) >= time.time() + FUTURE


def find_failure(
    folder: Path,
    start: str,
    until: float = 0,
    down: Callable[[tuple[str, ...]], frozenset[str]] = lambda hosts: frozenset(),
) -> Failure | None:
    """Waits for missing evidence until `until` (time.monotonic()), because a file system may show files of other hosts
    late. `down`: given hosts without evidence, returns those that the cluster reports as down."""
    folders = places_of(folder, start)
    while not (evidence := read_evidence(folders)).complete and time.monotonic() < until:
        time.sleep(PAUSE)
    verdict = verdict_of(evidence)
    if verdict is not None and verdict.silent_hosts:
        verdict = verdict_of(evidence, down(verdict.silent_hosts))
    return None if verdict is None else Failure(evidence, verdict)


def keep(folder: Path, failure: Failure) -> None:
    """Writes failure.json, unless the existing file describes a later start or attributes the failure to more ranks.
    Removes the evidence of old starts. Raises: OSError"""
    path = folder / "failure.json"
    before, now = load(path), as_object(failure)
    later = START.fullmatch(str(before.get("run"))) and before["run"] > now["run"] and not is_future(before["run"])
    if not later and not blames_more(before, failure) and {**before, "time": ""} != {**now, "time": ""}:
        replace_text(path, json.dumps(now, indent=1) + "\n")
    for name in starts_of(folder)[:-MOST_STARTS]:
        for place in places_of(folder, name):
            shutil.rmtree(place, ignore_errors=True)


def settle(folder: Path, failure: Failure, show: bool = False) -> None:
    """Writes failure.json and, with `show`, prints the report. Skips user errors, which mpzero has already printed."""
    if failure.verdict.user_error:
        return
    text = report(folder, failure) if show else ""
    try:
        keep(folder, failure)
    except OSError as error:
        text += f"mpzero: warning: cannot write {folder / 'failure.json'}: {error.strerror}\n"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text.encode(sys.stderr.encoding, "replace").decode(sys.stderr.encoding))
        sys.stderr.flush()


def as_object(failure: Failure) -> dict:
    evidence, verdict = failure.evidence, failure.verdict
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "job": evidence.job,
        "restart": evidence.restart,
        "step": max((record.step for record in evidence.records), default=0),
        "reason": verdict.reason,
        "ranks": list(verdict.ranks),
        "hosts": list(failure.hosts),
        "run": evidence.start,
        "started": evidence.started,
        "found_by": evidence.first,
        "foundation": evidence.count if verdict.ranks else 0,
    }


def blames_more(before: dict, failure: Failure) -> bool:
    """Returns True if the previous report attributed the same evidence to more ranks, which happens if the cluster had
    reported hosts as down."""
    ranks = before.get("ranks")
    same = before.get("run") == failure.evidence.start and failure.evidence.count <= whole(before.get("foundation"))
    return same and isinstance(ranks, list) and len(ranks) > len(failure.verdict.ranks)


def report(folder: Path, failure: Failure) -> str:
    """The report for the user: the verdict and the state of each rank. Ranks in the same state share a line."""
    verdict = failure.verdict
    lines = [f"mpzero: error: {verdict.reason}{f'; {verdict.remedy}' if verdict.remedy else ''}."]
    tag = newest_tag(folder)
    lines.append(f"  The same command resumes from {folder / tag}." if tag else "  The run has not saved a checkpoint.")
    places: dict[str, list[Record]] = {}
    for record in failure.evidence.records:
        places.setdefault(place(record), []).append(record)
    lines.append("  State of the ranks:")
    for text, records in list(places.items())[:MOST_PLACES]:
        hosts = list(dict.fromkeys(one.host for one in records if one.host))
        lines.append(f"    rank {ranges([one.rank for one in records])} ({some(hosts) or 'unknown host'}): {text}")
    if len(places) > MOST_PLACES:
        lines.append(f"    and {len(places) - MOST_PLACES} more states")
    return "".join(f"{line}\n" for line in lines)


def place(record: Record) -> str:
    """The state of a rank without times, so that ranks in the same state get the same text."""
    if not record.wrote and not record.seen:
        return "wrote no failure report"
    last = {"dead": "died", "ended": "ended normally", "stopped": "was stopped", "alive": "wrote no failure report"}
    text = where(record) if record.wrote else f"{last[record.seen]}; last seen {where(record)}"
    for channel in record.channels:
        if channel.queued:
            text += f"\n      {channel.name}: {channel.queued} requested, {channel.completed} completed"
            if one := channel.find(channel.completed + 1):
                text += f"; waits in {one.operation} {one.sequence}"
    return text


def ranges(ranks: list[int]) -> str:
    """ "0-3,7" """
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def newest_tag(folder: Path) -> str:
    try:
        tag = (read_text(folder / "latest") or "").strip()
    except (NotReadable, OSError):
        return ""
    return tag if NAME.fullmatch(tag) else printable(tag, 300)
