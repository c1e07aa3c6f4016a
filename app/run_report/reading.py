"""Reads the files that a run has written next to its checkpoints."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from run_files.json_lines import JsonLines
from run_files.metric_names import validation_losses
from run_files.regular_files import NotReadable, read_bytes
from run_files.runs import runs_in
from run_files.values import as_number, as_time, is_whole, object_of, whole

from run_report.node_times import NodeTimes, node_times_of
from run_report.rank_times import RankTimes


class ReportError(Exception):
    """A user error; the message is one sentence."""


class Columns(Mapping):
    """Values of each metric by step; NaN: missing. Arrays are built on request, because a file may contain a thousand
    metrics with few values each."""

    def __init__(self) -> None:
        self.steps = 0  # number of complete steps
        self._places: dict[str, array] = {}
        self._values: dict[str, array] = {}
        self._made: dict[str, np.ndarray] = {}

    def add(self, metric: str, value: float) -> None:
        """Records a metric's value at the current step (index `steps`)."""
        if metric not in self._places:
            self._places[metric], self._values[metric] = array("q"), array("d")
        self._places[metric].append(self.steps)
        self._values[metric].append(value)

    def __getitem__(self, metric: str) -> np.ndarray:
        if metric not in self._made:
            column = np.full(self.steps, np.nan)
            column[np.frombuffer(self._places[metric], np.int64)] = np.frombuffer(self._values[metric])
            self._made[metric] = column
        return self._made[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass
class Start:
    """The events of one start of a run."""

    began: dict
    saves: list[dict] = field(default_factory=list)
    warnings: list[dict] = field(default_factory=list)
    end: dict | None = None  # None: running, or killed


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
    file: str  # name of the metrics file
    damage: list[str]  # unusable parts of the files, one sentence each

    @property
    def run_id(self) -> str:
        return str(self.starts[-1].began.get("run", "")) if self.starts else ""

    @property
    def facts(self) -> dict:
        """The first event of the run's latest start, which contains its settings."""
        return self.starts[-1].began if self.starts else {}

    @property
    def status(self) -> str:
        if not self.starts:
            return "unknown"
        end = self.starts[-1].end
        return "running, or ended without a message" if end is None else str(end.get("status"))

    @property
    def warnings(self) -> list[dict]:
        return [warning for start in self.starts for warning in start.warnings]

    @property
    def saves(self) -> list[dict]:
        return [save for start in self.starts for save in start.saves]

    def last(self, name: str) -> float:
        """Returns the newest value of a metric, or NaN if there is none."""
        values = self.columns.get(name, np.empty(0))
        known = values[np.isfinite(values)]
        return float(known[-1]) if len(known) else math.nan

    def mean_rate(self, name: str) -> float:
        """Returns the time-weighted mean of a rate over all steps, or NaN if the rate was not recorded."""
        values = self.columns.get(name, np.empty(0))
        known = values[np.isfinite(values) & (values > 0)]
        with np.errstate(all="ignore"):
            return len(known) / float(np.sum(1 / known)) if len(known) else math.nan


def read_runs(paths: list[Path]) -> list[Run]:
    """Returns the runs, best first. Disambiguates duplicate run names: prefixes them with parent folders until they are
    unique, and adds the file name if a folder contains several runs."""
    runs = [read_run(run) for path in paths for run in runs_in(path)]
    folders = [run.folder.resolve() for run in runs]
    for depth in range(2, max(len(folder.parts) for folder in folders) + 1):
        if len({run.name for run in runs}) == len(set(folders)):
            break
        for run, folder in zip(runs, folders, strict=True):
            run.name = "/".join(folder.parts[-depth:])
    for run in runs:
        if len({other.file for other in runs if other.folder.resolve() == run.folder.resolve()}) > 1:
            run.name += f"/{run.file}"
    return best_first(runs)


def best_first(runs: list[Run]) -> list[Run]:
    """Sorts by the first loss metric that all runs recorded. Runs with a non-finite loss come last."""
    losses = [*dict.fromkeys(key for run in runs for key in validation_losses(run.columns)), "loss"]
    ranked = next((key for key in losses if all(math.isfinite(run.last(key)) for run in runs)), "loss")

    def rank(run: Run) -> tuple[bool, float]:
        values, last = run.columns.get("loss", []), run.last(ranked)
        return len(values) > 0 and not math.isfinite(values[-1]), last if math.isfinite(last) else math.inf

    return sorted(runs, key=rank)


def read_run(path: Path) -> Run:
    """Reads a run from its folder or its metrics file."""
    metrics = path / "metrics.jsonl" if path.is_dir() else path
    if not metrics.exists():
        raise ReportError(
            f"{metrics} does not exist: pass the --checkpoint_dir of a run, a folder of runs, or a --metrics_file."
        )
    damage = Damage()
    try:
        columns, rank_times, run_id = read_metrics(metrics, damage)
        summary = read_object(metrics.parent / "summary.json", damage)
        # Without step times, readings have no position on the x axis.
        node = damage.objects(metrics.parent / "node.jsonl") if has_times(columns) else []
        return Run(
            name=metrics.resolve().parent.name,
            folder=metrics.parent,
            columns=columns,
            rank_times=rank_times,
            node_times=node_times_of(node, run_id),
            starts=starts_of(damage.objects(metrics.parent / "events.jsonl"), run_id),
            failure=read_object(metrics.parent / "failure.json", damage),
            summary=summary if summary and summary.get("run") == run_id else None,
            file=metrics.name,
            damage=damage.sentences(),
        )
    except NotReadable as error:
        raise ReportError(f"{error}.") from error


class Damage:
    """Unusable parts of a run's files."""

    def __init__(self) -> None:
        self._lines: dict[Path, JsonLines] = {}
        self._lost: dict[Path, int] = {}  # lines that the run could not write
        self._files: list[str] = []  # ignored files, one sentence each

    def objects(self, path: Path) -> Iterator[dict]:
        """Yields the objects of a JSON Lines file, which may be missing."""
        try:
            for _, value in self.numbered_objects(path):
                yield value
        except NotReadable as reason:
            self.left_out(str(reason))

    def numbered_objects(self, path: Path) -> Iterator[tuple[int, dict]]:
        """Raises: NotReadable"""
        lines = self._lines[path] = JsonLines(path)
        for number, value in lines.objects():
            if value.get("event") == "gap":
                self._lost[path] = self._lost.get(path, 0) + whole(value.get("lines"))
            yield number, value

    def left_out(self, why: str) -> None:
        self._files.append(f"{why} and is ignored.")

    def sentences(self) -> list[str]:
        lines = [lines.damage() for lines in self._lines.values() if lines.damaged]
        lines += [
            f"{path.name} lacks {lost} line{'s' * (lost != 1)} that the run could not write."
            for path, lost in self._lost.items()
        ]
        return lines + self._files


def has_times(columns: Columns) -> bool:
    return "time" in columns and bool(np.isfinite(columns["time"]).any())


def read_metrics(path: Path, damage: Damage) -> tuple[Columns, RankTimes, str | None]:
    """Returns the values of each metric by step, the times of each rank, and the run's id. Raises: NotReadable"""
    columns, rank_times, run_id = Columns(), RankTimes(), None
    other = 0  # line of the first object that is not a step; runs also write other objects between steps
    for number, row in damage.numbered_objects(path):
        if not is_whole(row.get("step")) or "loss" not in row:
            other = other or number
            continue
        for name, value in row.items():
            if isinstance(value, str) and name != "loss":
                run_id = value if name == "run" else run_id
            elif name == "rank_seconds":
                rank_times.add(columns.steps, value)
            else:
                columns.add(name, as_time(value) if name == "time" else as_number(value))
        columns.steps += 1
    if columns.steps == 0 and (other or damage.sentences()):
        raise ReportError(
            f"{path} contains no training steps (see line {other or 1}): pass a file written by --metrics_file."
        )
    if columns.steps == 0:
        raise ReportError(f"{path} has no steps yet.")
    return columns, rank_times, run_id


def starts_of(events: Iterable[dict], run_id: str | None) -> list[Start]:
    """Returns the starts of the run, in the order of their events."""
    starts: dict[str, Start] = {}
    for event in events:
        if run_id is not None and event.get("run") != run_id:
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


def read_object(path: Path, damage: Damage) -> dict | None:
    """Returns None if the file is missing or is not a JSON object."""
    try:
        content = read_bytes(path)
    except NotReadable as reason:
        damage.left_out(str(reason))
        return None
    value = None if content is None else object_of(content)
    if content is not None and value is None:
        damage.left_out(f"{path.name} is not a JSON object")
    return value
