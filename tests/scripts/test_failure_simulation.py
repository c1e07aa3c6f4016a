"""Random runs of one and two levels in which one rank fails: the verdict names that rank, or nobody.

The reference is the run itself, simulated serially: every rank works through the same list of collectives until all of
them wait.
"""

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from evidence import Evidence, line

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "app"))
from run_failure.evidence import read_evidence
from run_failure.verdict import verdict_of

FAULTS = ("hang", "hang unwritten", "kill", "stop", "device error", "error", "dead host", "hang of a lost peer")


@dataclass
class Rank:
    done: int = 0  # of the program's collectives
    queued: dict[str, int] = field(default_factory=dict)
    completed: dict[str, int] = field(default_factory=dict)


class Run:
    def __init__(self, choose: random.Random):
        self.hosts, self.local = choose.randint(1, 4), choose.randint(2, 4)
        self.size = self.hosts * self.local
        levels = ("all", "inner", "across") if self.hosts > 1 else ("all",)
        self.program = [choose.choice(levels) for _ in range(choose.randint(4, 30))]
        self.ranks = [Rank() for _ in range(self.size)]
        self.sick = choose.randrange(self.size)
        self.stops_at = choose.randrange(len(self.program))
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
        """Each rank queues its next collective, and those complete that all of their group have queued."""
        moved = False
        for number, rank in enumerate(self.ranks):
            if rank.done == len(self.program) or (number == self.sick and rank.done == self.stops_at):
                continue
            level = self.program[rank.done]
            sequence = rank.completed.get(level, 0) + 1
            moved |= rank.queued.get(level, 0) != sequence
            rank.queued[level] = sequence
            group = [self.ranks[member] for member in self.members(level, number)]
            if all(member.queued.get(level, 0) >= sequence for member in group):
                rank.completed[level] = sequence
                rank.done += 1
                moved = True
        return moved

    def channels(self, number: int) -> list[dict]:
        rank = self.ranks[number]
        values = []
        for level in ("all", "inner", "across"):
            queued, completed = rank.queued.get(level, 0), rank.completed.get(level, 0)
            last = [[queued, "all_reduce", 64, 1, 30.0]] if queued > completed else []
            progress = {"queued": queued, "started": queued, "completed": completed}
            values.append({"name": level, "ranks": list(self.group(level, number)), **progress, "last": last})
        return values

    def leave_evidence(self, folder: Path, fault: str, choose: random.Random) -> tuple[int, ...]:
        """-> the ranks that are to be named"""
        found = Evidence(folder, self.hosts, self.local)
        sick_host = self.sick // self.local
        written = {"hang": "stuck", "device error": "device_error", "error": "error", "hang of a lost peer": "signal"}
        written = written.get(fault)
        seen = {"kill": {"alive": False}, "stop": {"quiet": 400.0}}.get(fault, {})
        order = choose.sample(range(self.size), self.size)
        broken = next(rank for rank in order if rank != self.sick)
        if fault.endswith("error"):
            order.sort(key=lambda rank: rank != self.sick)
        for rank in order:
            own = rank // self.local == sick_host
            if (rank == self.sick and written is None) or (own and fault == "dead host"):
                continue
            why = choose.choice(("stuck", "signal")) if fault != "hang" else "stuck"
            why = "stuck" if fault in ("hang unwritten", "dead host") or (fault == "stop" and rank == broken) else why
            if fault == "hang of a lost peer":
                why = choose.choice(("stuck", "signal", "communicator_error"))
                why = "communicator_error" if rank == broken else why
            neighbours = (
                [line(self.sick, channels=self.channels(self.sick), **seen)] if own and rank != self.sick else []
            )
            found.rank(rank, written if rank == self.sick else why, channels=self.channels(rank), neighbours=neighbours)
        return () if fault == "dead host" else (self.sick,)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_rank_that_failed_is_named_and_no_other(tmp_path, fault):
    for seed in range(150):
        choose = random.Random(seed)
        run = Run(choose)
        if fault == "dead host" and run.hosts == 1:
            continue
        folder = tmp_path / str(seed)
        expected = run.leave_evidence(folder, fault, choose)
        verdict = verdict_of(read_evidence([next((folder / "failures").iterdir())]))
        assert verdict is not None and verdict.ranks == expected, (seed, verdict)
        assert bool(verdict.silent_hosts) == (fault == "dead host")
