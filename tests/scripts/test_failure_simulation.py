"""Random runs of one and two levels in which one rank fails: the verdict names that rank, or nobody.

The reference is the run itself, simulated serially: every rank works through the same list of collectives until all of
them wait.
"""

import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from evidence import Evidence, line

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "app"))
from run_failure.evidence import read_evidence
from run_failure.verdict import verdict_of

LEVELS = ("all", "inner", "across")
# What the failed rank no longer does from some collective on; None: anything.
FAULTS = {
    "hang": "queue",
    "hang unwritten": "queue",
    "hang of a lost peer": "queue",
    "hang of a GPU": "start",
    "hang in a collective": "complete",
    "kill": None,
    "stop": None,
    "stop and continue": None,
    "device error": None,
    "error": None,
    "dead host": None,
    "network": "",  # two or more ranks never complete a collective that their group has started: no rank is blamed
}


@dataclass
class Rank:
    """How many collectives of the program the rank has queued, started and completed, and how many it ever will."""

    most: dict[str, float]
    queued: int = 0
    started: int = 0
    completed: int = 0


class Run:
    def __init__(self, choose: random.Random, fault: str):
        self.hosts, self.local = choose.randint(1, 4), choose.randint(2, 4)
        self.size = self.hosts * self.local
        levels = LEVELS if self.hosts > 1 else ("all",)
        self.program = [choose.choice(levels) for _ in range(choose.randint(4, 30))] + ["all"]
        self.ahead = choose.randint(1, 4)  # collectives that a rank queues before it waits for the first
        never = {"queue": math.inf, "start": math.inf, "complete": math.inf}
        self.ranks = [Rank(dict(never)) for _ in range(self.size)]
        self.sick, at = choose.randrange(self.size), choose.randrange(len(self.program) - 1)
        if fault == "network":
            group = self.members(self.program[at], self.sick)
            for rank in choose.sample(group, choose.randint(2, len(group))):
                self.ranks[rank].most["complete"] = at
        elif FAULTS[fault] is None:
            started = at + choose.randint(0, 1)
            self.ranks[self.sick].most.update(complete=at, start=started, queue=started + choose.randint(0, 2))
        else:
            self.ranks[self.sick].most[FAULTS[fault]] = at
        while self.advance():
            pass

    def group(self, level: str, rank: int) -> tuple[int, int, int]:
        host, local = divmod(rank, self.local)
        groups = {
            "all": (0, 0, 1),
            "inner": (host * self.local, self.local, 1),
            "across": (local, self.hosts, self.local),
        }
        return groups[level]

    def members(self, level: str, rank: int) -> list[int]:
        first, count, stride = self.group(level, rank)
        return [first + i * stride for i in range(count)] if count else list(range(self.size))

    def advance(self) -> bool:
        """Each rank queues, starts and completes a collective if it can; a device does so in order."""
        before = [(rank.queued, rank.started, rank.completed) for rank in self.ranks]
        for number, rank in enumerate(self.ranks):
            most = rank.most
            rank.queued += rank.queued < min(len(self.program), rank.completed + self.ahead, most["queue"])
            rank.started += rank.started == rank.completed < min(rank.queued, most["start"])
            if rank.completed < min(rank.started, most["complete"]):
                group = self.members(self.program[rank.completed], number)
                rank.completed += all(self.ranks[member].started > rank.completed for member in group)
        return before != [(rank.queued, rank.started, rank.completed) for rank in self.ranks]

    def channels(self, number: int) -> list[dict]:
        rank, values = self.ranks[number], []
        for level in LEVELS:
            queued, started, completed = (
                self.program[:count].count(level) for count in (rank.queued, rank.started, rank.completed)
            )
            last = [[one, "all_reduce", 64, 1, 30.0] for one in range(completed + 1, queued + 1)]
            progress = {"queued": queued, "started": started, "completed": completed}
            values.append({"name": level, "ranks": list(self.group(level, number)), **progress, "last": last})
        return values

    def leave_evidence(self, folder: Path, fault: str, choose: random.Random) -> tuple[int, ...]:
        """-> the ranks that are to be named"""
        found = Evidence(folder, self.hosts, self.local)
        sick_host = self.sick // self.local
        order = choose.sample(range(self.size), self.size)
        broken = next(rank for rank in order if rank != self.sick)
        if fault.endswith("error"):
            order.sort(key=lambda rank: rank != self.sick)
        lost = fault in ("hang of a lost peer", "network", "stop and continue")
        own = {
            "hang of a lost peer": "signal",
            "device error": "device_error",
            "error": "error",
            "stop and continue": choose.choice(("signal", "communicator_error")),
            "network": "stuck",
        }.get(fault, "stuck" if fault.startswith("hang") else None)
        seen = {"kill": {"alive": False}, "stop": {"quiet": 400.0}}.get(fault, {})
        for rank in order:
            near = rank // self.local == sick_host
            if rank == self.sick:
                why = None if fault == "hang unwritten" else own
            elif fault.startswith("hang"):
                why = "communicator_error" if lost and rank == broken else "stuck"
            else:
                why = choose.choice(("stuck", "signal", *["communicator_error"] * lost))
                why = "stuck" if rank == broken else why
            if why is None or (near and fault == "dead host"):
                continue
            gap = 400.0 if rank == self.sick and fault == "stop and continue" else 0.0
            line_of_sick = line(self.sick, channels=self.channels(self.sick), **seen)
            neighbours = [line_of_sick] if near and rank != self.sick else []
            found.rank(rank, why, channels=self.channels(rank), neighbours=neighbours, watchdog_gap_seconds=gap)
        return () if fault in ("dead host", "network") else (self.sick,)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_rank_that_failed_is_named_and_no_other(tmp_path, fault):
    for seed in range(60):
        choose = random.Random(seed)
        run = Run(choose, fault)
        if fault == "dead host" and run.hosts == 1:
            continue
        folder = tmp_path / str(seed)
        expected = run.leave_evidence(folder, fault, choose)
        verdict = verdict_of(read_evidence([next((folder / "failures").iterdir())]))
        assert verdict is not None and verdict.ranks == expected, (seed, verdict)
        assert bool(verdict.silent_hosts) == (fault == "dead host")
