"""Reads what a run has written next to its checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from run_files.values import as_number, is_whole, object_of

from run_report.columns import Columns
from run_report.node_times import NodeTimes, read_node
from run_report.rank_times import RankTimes

LARGEST_SMALL_FILE = 1 << 20


class ReportError(Exception):
    """A user error; the text is one sentence."""


@dataclass
class Start:
    """One start of a run: its events."""

    began: dict
    saves: list[dict] = field(default_factory=list)
    warnings: list[dict] = field(default_factory=list)
    end: dict | None = None  # None: it runs, or was killed


@dataclass
class Run:
    name: str
    folder: Path
    columns: Columns
    rank_times: RankTimes
    node_times: NodeTimes
    starts: list[Start]
    failure: dict | None  # failure.json
    summary: dict | None  # summary.json
    file: str  # the name of the metrics file

    @property
    def run_id(self) -> str:
        return str(self.starts[-1].began.get("run", "")) if self.starts else ""

    @property
    def facts(self) -> dict:
        """Of the newest start."""
        return self.starts[-1].began if self.starts else {}

    @property
    def status(self) -> str:
        if not self.starts:
            return "unknown"
        end = self.starts[-1].end
        return "running, or ended without a word" if end is None else str(end.get("status"))

    @property
    def warnings(self) -> list[dict]:
        return [warning for start in self.starts for warning in start.warnings]

    @property
    def saves(self) -> list[dict]:
        return [save for start in self.starts for save in start.saves]

    def last(self, name: str) -> float:
        """The newest value of a metric; NaN: it has none."""
        values = self.columns.get(name, np.empty(0))
        known = values[np.isfinite(values)]
        return float(known[-1]) if len(known) else math.nan


def read_runs(paths: list[Path]) -> list[Run]:
    """Runs of the same name get as many of their folders as tell them apart, and their file where one has several."""
    runs = [read_run(path) for path in paths]
    folders = [run.folder.resolve() for run in runs]
    for depth in range(2, max(len(folder.parts) for folder in folders) + 1):
        if len({run.name for run in runs}) == len(set(folders)):
            break
        for run, folder in zip(runs, folders, strict=True):
            run.name = "/".join(folder.parts[-depth:])
    for run in runs:
        if len({other.file for other in runs if other.folder.resolve() == run.folder.resolve()}) > 1:
            run.name += f"/{run.file}"
    return runs


def read_run(path: Path) -> Run:
    """`path`: a run's folder, or its metrics file."""
    metrics = path / "metrics.jsonl" if path.is_dir() else path
    if not metrics.exists():
        raise ReportError(
            f"{metrics} does not exist: give the --checkpoint_dir of a run that had --metrics_file in it, or that file."
        )
    columns, rank_times, run_id = read_metrics(metrics)
    summary = read_object(metrics.parent / "summary.json")
    return Run(
        name=metrics.resolve().parent.name,
        folder=metrics.parent,
        columns=columns,
        rank_times=rank_times,
        # Without the steps' times it is not known where a reading belongs.
        node_times=read_node(metrics.parent / "node.jsonl", run_id) if has_times(columns) else NodeTimes(),
        starts=read_starts(metrics.parent / "events.jsonl", run_id),
        failure=read_object(metrics.parent / "failure.json"),
        summary=summary if summary and summary.get("run") == run_id else None,
        file=metrics.name,
    )


def has_times(columns: Columns) -> bool:
    return "time" in columns and bool(np.isfinite(columns["time"]).any())


def read_metrics(path: Path) -> tuple[Columns, RankTimes, str | None]:
    """-> the values of each metric by step, the times of each rank, and the run's id"""
    columns, rank_times, run_id = Columns(), RankTimes(), None
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                row = object_of(line)
                if row is None or not is_whole(row.get("step")) or "loss" not in row:
                    if not line.endswith("\n"):  # the run may be writing it
                        break
                    raise ReportError(f"{path} line {number} is no step of a run: give a file of --metrics_file.")
                for name, value in row.items():
                    if isinstance(value, str) and name != "loss":
                        run_id = value if name == "run" else run_id
                        continue
                    if name == "rank_seconds":
                        rank_times.add(columns.steps, value)
                        continue
                    columns.add(name, as_number(value))
                columns.steps += 1
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}.") from error
    if columns.steps == 0:
        raise ReportError(f"{path} holds no step yet.")
    return columns, rank_times, run_id


def read_starts(path: Path, run_id: str | None) -> list[Start]:
    """Those of the run, in the order of their events. Lines that a crash has cut are left out."""
    starts: dict[str, Start] = {}
    try:
        # splitlines() would also cut at separators that JSON allows in a text.
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}.") from error
    for line in lines:
        event = object_of(line)
        if event is None or (run_id is not None and event.get("run") != run_id):
            continue
        kind, start = event.get("event"), starts.get(str(event.get("start")))
        if kind == "start":
            starts[str(event.get("start"))] = Start(event)
        elif start is None:
            continue
        elif kind == "checkpoint":
            start.saves.append(event)
        elif kind == "warning":
            start.warnings.append(event)
        elif kind == "end":
            start.end = event
    return list(starts.values())


def read_object(path: Path) -> dict | None:
    try:
        if path.stat().st_size > LARGEST_SMALL_FILE:
            return None
        return object_of(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
