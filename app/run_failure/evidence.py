"""Reads the evidence that the ranks of one start wrote to failures/START: start.json and rank_N.json (docs/formats.md).

Other users may have written the files: each value is validated, damaged files count as missing, and strings are made
printable.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from run_files.regular_files import NotReadable, read_text
from run_files.untrusted import NAME, parse_json, printable
from run_files.values import as_number, as_time, is_whole, whole

START = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
MOST_RANKS = 100_000
MOST_CHANNELS = 64
MOST_COLLECTIVES = 64
PHASES = ("network", "setup", "first_step", "training", "validation", "checkpoint", "ending")
WHYS = ("error", "user_error", "stuck", "signal", "communicator_error", "device_error")
# A watchdog updates its line every 100 ms. If a line is older than this many seconds, or than half of its limit, the
# process counts as stopped.
STOPPED_AFTER = 15.0
# Exit statuses of ranks that end normally: finished, stopped, interrupted (base/error.hpp).
ENDS = (0, 75, 130)


@dataclass(frozen=True)
class Group:
    """The ranks of a communicator: `count` ranks, starting at `first`, with a stride; count 0: all ranks."""

    first: int = 0
    count: int = 0
    stride: int = 1

    def __contains__(self, rank: int) -> bool:
        offset = rank - self.first
        return self.count == 0 or (offset % self.stride == 0 and 0 <= offset // self.stride < self.count)


@dataclass(frozen=True)
class Collective:
    sequence: int
    operation: str
    bytes: int
    state: int  # 0: queued, 1: started, 2: completed
    seconds: float  # since the collective was queued


@dataclass(frozen=True)
class Channel:
    """One communicator on one rank, with the sequence numbers of its last queued, started and completed collectives."""

    name: str
    ranks: Group
    queued: int
    started: int
    completed: int
    last: tuple[Collective, ...] = ()

    def find(self, sequence: int) -> Collective | None:
        return next((one for one in self.last if one.sequence == sequence), None)


@dataclass(frozen=True)
class Record:
    """The known state of one rank."""

    rank: int
    host: str = ""  # empty: unknown
    pid: int = 0
    why: str = ""  # one of WHYS; empty: the rank wrote no failure report
    error: str = ""
    culprits: tuple[int, ...] = ()
    time: float = math.inf  # when the rank wrote its evidence; Unix time in seconds
    phase: str = "setup"
    step: int = 0
    idle: float = 0.0  # seconds without progress
    limit: float = 0.0  # value of `idle` above which the rank is stuck; 0: no limit
    gap: float = 0.0  # seconds without a running watchdog since the rank last made progress
    channels: tuple[Channel, ...] = ()
    # Last state seen by another rank on the host, if the rank reported no failure: "alive", "stopped", "dead" or
    # "ended"; empty: none.
    seen: str = ""
    died_first: bool = False  # already dead in the first view of its host in which any rank is dead

    @property
    def wrote(self) -> bool:
        return self.why != ""

    @property
    def stopped(self) -> bool:
        """True if the process was stopped. The launcher may have sent SIGCONT later, to terminate it."""
        return self.seen == "stopped" or (self.why == "signal" and self.gap >= patience(self.limit))


@dataclass(frozen=True)
class Evidence:
    start: str
    records: tuple[Record, ...]  # by rank
    has_start: bool  # False: start.json is missing, and `records` may lack ranks
    job: str = ""
    restart: int = 0
    started: int = 0
    first: int = -1  # the rank that wrote first; -1: unknown

    @property
    def time(self) -> float:
        """Time of the newest evidence; 0: no evidence."""
        return max((record.time for record in self.records if record.time < math.inf), default=0.0)

    @property
    def count(self) -> int:
        """Number of ranks that wrote evidence."""
        return sum(record.wrote for record in self.records)

    @property
    def complete(self) -> bool:
        """True if each rank has written evidence, or another rank on its host reports that it has ended."""
        return self.has_start and all(record.wrote or record.seen in ("dead", "ended") for record in self.records)

    @property
    def silent_hosts(self) -> tuple[str, ...]:
        """Hosts without evidence from any of their ranks."""
        heard = {record.host for record in self.records if record.wrote}
        return tuple(dict.fromkeys(one.host for one in self.records if one.host and one.host not in heard))


def read_evidence(folders: list[Path]) -> Evidence:
    """Reads the evidence of one start. `folders`: in the checkpoint folder, then in the log folder."""
    start = next(filter(None, (load(folder / "start.json") for folder in folders)), {})
    numbers = range(min(whole(start.get("ranks")), MOST_RANKS)) or sorted(listed_ranks(folders))
    found = {number: load_rank(folders, number) for number in numbers}
    objects = {number: value for number, value in found.items() if value.get("why") in WHYS}
    some = start or next(iter(objects.values()), {})
    hosts = start.get("hosts") if isinstance(start.get("hosts"), list) else []
    size = max(numbers, default=-1) + 1
    records = [Record(rank, host=host_of(hosts[rank]) if rank < len(hosts) else "") for rank in range(size)]
    for number, value in objects.items():
        records[number] = record_of(value, records[number], size)
    add_views(records, objects)
    begun = as_time(start.get("started"))
    return Evidence(
        start=folders[0].name,
        records=tuple(records),
        has_start=bool(start),
        job=printable(some.get("job") or "", 60),
        restart=whole(some.get("restart")),
        started=0 if math.isnan(begun) else int(begun),
        first=first_of(folders, size),
    )


def load(path: Path) -> dict:
    """Reads a JSON object; empty if the file is missing or damaged."""
    try:
        value = parse_json(read_text(path, follow=False) or "")
    except (NotReadable, OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def unread_files(folders: list[Path]) -> list[str]:
    """One sentence per damaged file of a start, without a final period."""
    reasons = [f"{folder} is not a folder" for folder in folders if os.path.lexists(folder) and not folder.is_dir()]
    for folder in folders:
        for name in ("start.json", "first", *(f"rank_{rank}.json" for rank in sorted(listed_ranks([folder])))):
            try:
                text = read_text(folder / name, follow=False)
                if text is not None and name != "first" and not isinstance(parse_json(text), dict):
                    reasons.append(f"{folder / name} is not a JSON object")
            except ValueError as error:
                reasons.append(f"{folder / name} is not JSON: {error}")
            except NotReadable as error:
                reasons.append(f"{error}")
    return [printable(reason) for reason in reasons]


def load_rank(folders: list[Path], rank: int) -> dict:
    """The newest evidence of a rank. A checkpoint folder that stopped responding contains an older version."""
    found = filter(None, (load(folder / f"rank_{rank}.json") for folder in folders))
    return max(found, key=lambda value: number_or(as_time(value.get("time")), 0.0), default={})


def listed_ranks(folders: list[Path]) -> set[int]:
    """Ranks with evidence, for a start without start.json."""
    names = []
    for folder in folders:
        with contextlib.suppress(OSError):
            names += os.listdir(folder)
    matches = filter(None, (re.fullmatch(r"rank_(0|[1-9][0-9]{0,4})\.json", name) for name in names))
    return {int(match.group(1)) for match in matches}


def first_of(folders: list[Path], size: int) -> int:
    for folder in folders:
        try:
            text = (read_text(folder / "first", follow=False) or "").strip()
        except (NotReadable, OSError):
            continue
        if re.fullmatch("[0-9]{1,6}", text) and int(text) < size:
            return int(text)
    return -1


def record_of(value: dict, known: Record, size: int) -> Record:
    """A rank's record, from its own evidence or from its line in the evidence of another rank on its host."""
    phase = value.get("phase")
    return Record(
        rank=known.rank,
        host=host_of(value.get("host")) or known.host,
        pid=whole(value.get("pid")),
        why=str(value.get("why", "")),
        error=printable(value.get("error") or "", 1000),
        culprits=tuple(rank for rank in list_of(value.get("culprits"))[:size] if is_whole(rank) and rank < size),
        time=number_or(as_time(value.get("time")), math.inf),
        phase=phase if phase in PHASES else "setup",
        step=whole(value.get("step")),
        idle=seconds(value.get("seconds_since_progress")),
        limit=seconds(value.get("limit")),
        gap=seconds(value.get("watchdog_gap_seconds")),
        channels=tuple(map(channel_of, objects_of(value.get("channels"))[:MOST_CHANNELS])),
    )


def channel_of(value: dict) -> Channel:
    ranks = [whole(number) for number in list_of(value.get("ranks"))[:3]] + [0, 0, 0]
    last = [one for one in list_of(value.get("last"))[-MOST_COLLECTIVES:] if isinstance(one, list) and len(one) == 5]
    return Channel(
        name=printable(value.get("name") or "", 100),
        ranks=Group(ranks[0], ranks[1], max(1, ranks[2])) if ranks[1] else Group(),
        queued=whole(value.get("queued")),
        started=whole(value.get("started")),
        completed=whole(value.get("completed")),
        last=tuple(
            Collective(whole(one[0]), printable(one[1], 60), whole(one[2]), whole(one[3]), seconds(one[4]))
            for one in last
        ),
    )


def add_views(records: list[Record], objects: dict[int, dict]) -> None:
    """For ranks without evidence, adds the newest view of another rank on the host. Marks the ranks that died first."""
    died: dict[str, tuple[float, set[int]]] = {}
    views = sorted((records[rank].time, rank) for rank in objects)
    for time, observer in views:
        host = records[observer].host
        dead = set()
        for line in objects_of(objects[observer].get("neighbours"))[:MOST_RANKS]:
            rank = line.get("rank")
            if not is_whole(rank) or rank >= len(records) or records[rank].host not in ("", host):
                continue
            seen = state_of(line, records[observer].limit)
            if records[rank].wrote:
                if records[rank].why == "signal" and seen == "stopped":
                    records[rank] = replace(records[rank], seen=seen)
                continue
            if seen == "dead":
                dead.add(rank)
            known = replace(records[rank], host=records[rank].host or host)
            records[rank] = replace(record_of({**line, "why": ""}, known, len(records)), host=known.host, seen=seen)
        if dead and host not in died:
            died[host] = (time, dead)
    for _, dead in died.values():
        for rank in dead:
            records[rank] = replace(records[rank], died_first=records[rank].seen == "dead")


def state_of(line: dict, limit: float) -> str:
    if line.get("ended") is True or line.get("exit_status") in ENDS:
        return "ended"
    if line.get("alive") is not True:
        return "dead"
    return "stopped" if seconds(line.get("quiet")) >= patience(limit) else "alive"


def patience(limit: float) -> float:
    return min(STOPPED_AFTER, limit / 2) if limit > 0 else STOPPED_AFTER


def host_of(value: object) -> str:
    return value if isinstance(value, str) and NAME.fullmatch(value) else ""


def seconds(value: object) -> float:
    number = as_number(value)
    return number if 0 <= number < 1e9 else 0.0


def number_or(value: float, default: float) -> float:
    return default if math.isnan(value) else value


def list_of(value: object) -> list:
    return value if isinstance(value, list) else []


def objects_of(value: object) -> list[dict]:
    return [element for element in list_of(value) if isinstance(element, dict)]
