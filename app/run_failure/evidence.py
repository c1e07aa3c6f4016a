"""Reads the evidence that ranks wrote to failures/START (docs/formats.md): start.json and rank_N.json. START is the
time at which an attempt of the run started.

Other users may have written the files: each value is validated, damaged files count as missing, and strings are made
printable.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from run_files.regular_files import SMALL_BYTES, NotReadable, read_text
from run_files.untrusted import NAME, parse_json, printable
from run_files.values import as_number, as_time, is_whole, whole

START = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
MOST_RANKS = 100_000
START_BYTES = 1 << 24  # limit for start.json, which contains the host and process id of each rank
PHASES = ("network", "setup", "first_step", "training", "validation", "checkpoint", "ending")
WHYS = ("error", "shared_error", "user_error", "stuck", "signal", "communicator_error", "device_error")
# A watchdog updates its rank's record in shared memory every 100 ms. If the last update is older than this many
# seconds, or than half of the timeout, the process counts as stopped.
STOPPED_AFTER = 15.0
# Exit statuses of ranks that end without a failure: finished, stopped, interrupted (base/error.hpp).
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
    provisional: bool = False  # the rank was still running when it wrote its evidence
    error: str = ""
    culprits: tuple[int, ...] = ()
    time: float = math.inf  # when the rank wrote its evidence; Unix time in seconds
    phase: str = "setup"
    step: int = 0
    idle: float = 0.0  # seconds without progress
    gap: float = 0.0  # seconds since the last progress during which the watchdog did not run
    limit: float = 0.0  # timeout without progress, in seconds; 0: none
    channels: tuple[Channel, ...] = ()
    # Last state seen by another rank on the host, if the rank wrote no final evidence: "alive", "stopped", "dead" or
    # "ended"; empty: none.
    seen: str = ""
    died_first: bool = False  # one of the first ranks seen dead on its host

    @property
    def wrote(self) -> bool:
        return self.why != "" and not self.provisional

    @property
    def stopped(self) -> bool:
        """True if the process was stopped. The launcher may later have sent SIGCONT in order to terminate it."""
        continued = self.why in ("signal", "communicator_error") and self.gap >= stopped_after(self.limit)
        return self.seen == "stopped" or continued


@dataclass(frozen=True)
class Evidence:
    start: str
    records: tuple[Record, ...]  # by rank; empty: start.json is missing
    job: str = ""
    restart: int = 0
    started: int = 0
    first: int = -1  # the rank that wrote evidence first; -1: unknown

    @property
    def complete(self) -> bool:
        """True if each rank has written evidence or is reported as ended by another rank on its host, or if rank 0 has
        written evidence for all ranks."""
        ended = (one.wrote or one.seen in ("dead", "ended") for one in self.records)
        return bool(self.records) and (all(ended) or any(one.why == "shared_error" for one in self.records))

    @property
    def silent_hosts(self) -> tuple[str, ...]:
        """Hosts without evidence from any of their ranks."""
        heard = {record.host for record in self.records if record.wrote}
        return tuple(dict.fromkeys(one.host for one in self.records if one.host and one.host not in heard))


def read_evidence(folders: list[Path], known: dict[int, dict] | None = None) -> Evidence:
    """Reads the evidence from one attempt. `folders`: failures/START in the checkpoint folder, then in the log
    folder. `known`: final evidence by rank, which is not read again; extended with the evidence that this call reads.
    """
    known = {} if known is None else known
    start = load_start(folders)
    size = min(whole(start.get("ranks")), MOST_RANKS)
    hosts, pids = (dict(enumerate(list_of(start.get(key)))) for key in ("hosts", "pids"))
    records = [Record(rank, host=host_of(hosts.get(rank)), pid=whole(pids.get(rank))) for rank in range(size)]
    found = {rank: known.get(rank) or load_rank(folders, rank) for rank in range(size)}
    objects = {rank: value for rank, value in found.items() if value.get("why") in WHYS}
    known.update((rank, value) for rank, value in objects.items() if value.get("provisional") is not True)
    for rank, value in objects.items():
        records[rank] = record_of(value, records[rank], size)
    add_views(records, objects)
    begun = as_time(start.get("started"))
    return Evidence(
        start=folders[0].name,
        records=tuple(records),
        job=printable(start.get("job") or "", 60),
        restart=whole(start.get("restart")),
        started=0 if math.isnan(begun) else int(begun),
        first=first_of(folders, size),
    )


def load(path: Path, most: int = SMALL_BYTES) -> dict:
    """Reads a JSON object. Returns {} if the file is missing or, with a warning, if it is damaged."""
    try:
        value = parse_json(read_text(path, most, follow=False) or "{}")
    except NotReadable as error:
        return skip(f"{error}")
    except (OSError, ValueError) as error:
        return skip(f"{path} is not JSON: {error}")
    return value if isinstance(value, dict) else skip(f"{path} is not a JSON object")


@lru_cache(maxsize=4096)
def skip(reason: str) -> dict:
    """Prints each warning once."""
    with contextlib.suppress(OSError, ValueError):  # a full log
        print(f"mpzero: warning: ignored {printable(reason)}.", file=sys.stderr, flush=True)
    return {}


def load_start(folders: list[Path]) -> dict:
    return next(filter(None, (load(folder / "start.json", START_BYTES) for folder in folders)), {})


def load_rank(folders: list[Path], rank: int) -> dict:
    """Returns the newest evidence of a rank. If the checkpoint folder stopped responding, it contains an older
    version."""
    found = filter(None, (load(folder / f"rank_{rank}.json") for folder in folders))
    return max(found, key=lambda value: seconds(value.get("time")), default={})


def first_of(folders: list[Path], size: int) -> int:
    for folder in folders:
        try:
            text = read_text(folder / "first", follow=False) or ""
        except (NotReadable, OSError) as error:
            skip(f"{error}")
            continue
        if (match := re.match(r"([0-9]{1,6})\n", text)) and int(match.group(1)) < size:
            return int(match.group(1))
    return -1


def record_of(value: dict, known: Record, size: int) -> Record:
    """Returns a rank's record, from its own evidence or from its line in the evidence of another rank on its host."""
    phase = value.get("phase")
    return Record(
        rank=known.rank,
        host=host_of(value.get("host")) or known.host,
        pid=whole(value.get("pid")),
        why=str(value.get("why", "")),
        provisional=value.get("provisional") is True,
        error=printable(value.get("error") or "", 1000),
        culprits=tuple(rank for rank in list_of(value.get("culprits")) if is_whole(rank) and rank < size),
        time=seconds(value.get("time")) or math.inf,
        phase=phase if phase in PHASES else "setup",
        step=whole(value.get("step")),
        idle=seconds(value.get("seconds_since_progress")),
        gap=seconds(value.get("watchdog_gap_seconds")),
        limit=seconds(value.get("limit")),
        channels=tuple(map(channel_of, objects_of(value.get("channels")))),
    )


def channel_of(value: dict) -> Channel:
    first, count, stride = ([whole(number) for number in list_of(value.get("ranks"))] + [0, 0, 0])[:3]
    last = [one for one in list_of(value.get("last")) if isinstance(one, list) and len(one) == 5]
    return Channel(
        name=printable(value.get("name") or "", 100),
        ranks=Group(first, count, max(1, stride)) if count else Group(),
        queued=whole(value.get("queued")),
        started=whole(value.get("started")),
        completed=whole(value.get("completed")),
        last=tuple(Collective(whole(one[0]), printable(one[1], 60), seconds(one[4])) for one in last),
    )


def add_views(records: list[Record], objects: dict[int, dict]) -> None:
    """If a rank wrote no final evidence, completes its record from the newest report of another rank on the same host.
    Marks the ranks that died first."""
    bereaved = set()  # hosts on which a rank has died
    for observer in sorted(objects, key=lambda rank: records[rank].time):
        host, limit = records[observer].host, seconds(objects[observer].get("limit"))
        any_dead = False
        for line in objects_of(objects[observer].get("neighbours"))[:MOST_RANKS]:
            rank = line.get("rank")
            if not is_whole(rank) or rank >= len(records) or records[rank].host not in ("", host):
                continue
            known, seen = replace(records[rank], host=host), state_of(line, limit)
            is_newer = not known.why or records[observer].time > known.time
            if not known.wrote and is_newer:
                died_first = known.died_first or (seen == "dead" and host not in bereaved)
                of_line = record_of({**line, "why": "", "host": host}, known, len(records))
                records[rank] = replace(of_line, seen=seen, died_first=died_first)
                any_dead |= seen == "dead"
        if any_dead:
            bereaved.add(host)


def stopped_after(limit: float) -> float:
    return min(STOPPED_AFTER, limit / 2) if limit > 0 else STOPPED_AFTER


def state_of(line: dict, limit: float) -> str:
    if line.get("exit_status") in ENDS:
        return "ended"
    if line.get("alive") is not True:
        return "dead"
    return "stopped" if seconds(line.get("quiet")) >= stopped_after(limit) else "alive"


def host_of(value: object) -> str:
    return value if isinstance(value, str) and NAME.fullmatch(value) else ""


def seconds(value: object) -> float:
    number = as_number(value)
    return number if 0 <= number < 1e10 else 0.0


def list_of(value: object) -> list:
    return value if isinstance(value, list) else []


def objects_of(value: object) -> list[dict]:
    return [element for element in list_of(value) if isinstance(element, dict)]
