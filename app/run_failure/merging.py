"""Turns the evidence from a run's latest attempt into failure.json, the user's report and the exit status."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from run_files.replacing import replace_text

from run_failure.evidence import START, Evidence, load, load_start, read_evidence
from run_failure.verdict import Verdict, verdict_of

# Exit statuses, as in base/error.hpp.
FAILURE, USER_ERROR = 1, 2
MOST_STARTS = 20
PAUSE = 0.5


def no_host(hosts: tuple[str, ...]) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True)
class Failure:
    """The evidence from a failed attempt of the run, and its cause."""

    evidence: Evidence
    verdict: Verdict

    @property
    def hosts(self) -> tuple[str, ...]:
        hosts = (self.evidence.records[rank].host for rank in self.verdict.ranks)
        return tuple(dict.fromkeys(filter(None, hosts)))

    def status(self, status: int) -> int:
        """Returns the job's exit status. `status`: the launcher's nonzero exit status. It may be the status of a
        stopped run: ranks interpret the signal that the launcher sends them after a failure as a stop request."""
        return USER_ERROR if self.verdict.user_error or status == USER_ERROR else FAILURE


def judge(folder: Path, until: float = 0, down: Callable = no_host, **wanted: object) -> Failure | None:
    """Returns the failure of a launch's attempt (see newest_start), and reports it. Waits for missing evidence until
    `until` (time.monotonic())."""
    start = newest_start(folder, until, **wanted)
    failure = find_failure(folder, start, until, down) if start else None
    if failure:
        settle(folder, failure, show=True)
    return failure


def last_failure(folder: Path, down: Callable = no_host) -> Failure | None:
    """Returns the latest failure. Later attempts may have left evidence, too: a stopped rank that waits for other ranks
    writes provisional evidence."""

    def has_reports(start: str) -> bool:
        return any(any(place.glob("rank_*.json")) for place in places_of(folder, start))

    starts = filter(has_reports, reversed(starts_of(folder)))
    return next(filter(None, (find_failure(folder, start, down=down) for start in starts)), None)


def newest_start(folder: Path, until: float = 0, **wanted: object) -> str | None:
    """Returns the start time of the latest attempt in this checkpoint folder whose start.json has the `wanted` values
    (None: any). None if start.json of this or a later attempt is missing or damaged: the later attempt may be the
    wanted one. Waits for an attempt until `until` (time.monotonic()), because its folder may appear late on a network
    file system."""

    def look() -> str | None:
        for start in reversed(starts_of(folder)):
            if not (facts := load_start(places_of(folder, start))):
                return None
            if all(value in (None, facts.get(key)) for key, value in wanted.items()):
                return start
        return None

    while (start := look()) is None and time.monotonic() < until:
        time.sleep(PAUSE)
    return start


def starts_of(folder: Path) -> list[str]:
    """Returns the start times of the attempts in the order of their latest evidence: an attempt that is refused while
    another attempt is running must not hide a later failure of the running attempt."""
    own, *others = places_of(folder)
    times = times_in(own)
    for place in others:
        for name, changed in times_in(place).items():
            if name in times or belongs(place / name, folder):
                times[name] = max(changed, times.get(name, 0))
    return sorted(times, key=lambda name: (times[name], name))


def times_in(place: Path) -> dict[str, int]:
    """Returns the time at which evidence was last added, for each attempt in this folder."""
    with contextlib.suppress(OSError):
        return {path.name: path.lstat().st_mtime_ns for path in place.iterdir() if START.fullmatch(path.name)}
    return {}


def places_of(folder: Path, start: str = "") -> list[Path]:
    """Returns the folders to which ranks write evidence: the checkpoint folder or, if it is not writable, a folder from
    the ranks' environment, which other runs share (app/watchdog/watchdog.cpp)."""
    logs = [os.environ.get(name) for name in ("MPZERO_LOG_DIR", "LOG_DIR", "TMPDIR")] + ["/tmp"]
    folders = dict.fromkeys([folder, *(Path(log) for log in logs if log)])
    own, *others = (place / "failures" / start for place in folders)
    return [own, *(place for place in others if not start or belongs(place, folder))]


def belongs(place: Path, folder: Path) -> bool:
    """Returns True if `place` belongs to the run with this checkpoint folder."""
    with contextlib.suppress(OSError, ValueError):
        # Any user can write false evidence to /tmp.
        if place.stat().st_uid in (os.geteuid(), folder.stat().st_uid if folder.exists() else None):
            named = load_start([place]).get("checkpoint_dir")
            return isinstance(named, str) and os.path.realpath(named) == os.path.realpath(folder)
    return False


def find_failure(folder: Path, start: str, until: float = 0, down: Callable = no_host) -> Failure | None:
    """Waits for missing evidence until `until` (time.monotonic()), because files from other hosts may appear
    late on a network file system. `down`: given hosts without evidence, returns those that the cluster reports as
    down."""
    known: dict[int, dict] = {}
    while not (evidence := read_evidence(places_of(folder, start), known)).complete and time.monotonic() < until:
        time.sleep(PAUSE)
    verdict = verdict_of(evidence)
    if verdict is not None and verdict.silent_hosts:
        verdict = verdict_of(evidence, down(verdict.silent_hosts))
    return None if verdict is None else Failure(evidence, verdict)


def keep(folder: Path, failure: Failure) -> None:
    """Writes failure.json, unless the existing file describes a later attempt, contains the same verdict, or attributes
    the failure to silent hosts, which the cluster may no longer report as down. Raises: OSError"""
    path = folder / "failure.json"
    before, now = load(path), as_object(failure)
    runs = [name for name in starts_of(folder) if name in (before.get("run"), now["run"])]
    later = runs != [] and runs[-1] != now["run"]
    were_down = before.get("run") == now["run"] and before.get("ranks") and failure.verdict.silent_hosts
    if not later and not were_down and {**now, "time": before.get("time")} != before:
        replace_text(path, json.dumps(now, indent=1) + "\n")


def remove_old_starts(folder: Path) -> None:
    for name in starts_of(folder)[:-MOST_STARTS]:
        for place in places_of(folder, name):
            shutil.rmtree(place, ignore_errors=True)


def settle(folder: Path, failure: Failure, show: bool = False) -> None:
    """Writes failure.json and, with `show`, prints the verdict. Skips user errors, which mpzero has already printed."""
    verdict = failure.verdict
    if verdict.user_error:
        return
    text = f"mpzero: error: {verdict.reason}; {verdict.remedy}.\n" if show else ""
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
    }
