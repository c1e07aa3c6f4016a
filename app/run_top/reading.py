"""Reads a run's current state from its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from run_files.json_lines import JsonLines
from run_files.metric_names import validation_losses
from run_files.runs import choice
from run_files.values import as_number, strings

MOST_BYTES = 4 << 20  # number of bytes to read at the end of a metrics file
MOST_LOSSES = 20_000


class TopError(Exception):
    """A user error; the message is one sentence."""


@dataclass
class RunView:
    """The current state of a run. Events are objects from events.jsonl, or {} if missing."""

    start: dict = field(default_factory=dict)  # the latest start
    starts: int = 0
    end: dict = field(default_factory=dict)  # end of the latest start
    checkpoint: dict = field(default_factory=dict)
    warning: str = ""
    step: dict[str, float] = field(default_factory=dict)  # the newest value of each metric
    rank_seconds: list[float] = field(default_factory=list)  # by rank, from the newest step with rank_seconds
    validation: dict[str, float] = field(default_factory=dict)  # newest validation losses, by label
    validation_step: float = 0
    losses: list[float] = field(default_factory=list)  # training losses of the steps that were read

    @property
    def hosts(self) -> list[str]:
        return strings(self.start.get("hosts"))

    @property
    def metrics_file(self) -> str | None:
        """Metrics file of the latest start; "" if the run writes none, None if unknown."""
        name = self.start.get("metrics_file")
        return name if isinstance(name, str) else None


class RunReader:
    """Follows the files in a run's folder, or a metrics file and the events file next to it."""

    def __init__(self, run: Path):
        """Raises: TopError"""
        self.is_file_given = not run.is_dir()
        self.folder = run.parent if self.is_file_given else run
        metrics = run if self.is_file_given else run / "metrics.jsonl"
        self.events = JsonLines(self.folder / "events.jsonl")
        if not self.events.path.exists() and not metrics.exists():
            raise TopError(
                choice(run)
                or f"{run} has neither events.jsonl nor metrics.jsonl: pass a run's --checkpoint_dir, its metrics "
                "file, or its Slurm job id."
            )
        self.metrics = JsonLines(metrics, MOST_BYTES)
        self.view = RunView()

    def update(self) -> RunView:
        """Raises: NotReadable"""
        for _, event in self.events.new_objects():
            self._add_event(event)
        name = self.view.metrics_file
        if name is not None and not self.is_file_given:
            # The metrics file is next to the events file, even if the folder has a different path on this host.
            path = self.folder / Path(name).name
            if name and path != self.metrics.path:
                self.metrics.close()
                self.metrics = JsonLines(path, MOST_BYTES)
        if name != "" or self.is_file_given:
            openings = self.metrics.openings
            for _, step in self.metrics.new_objects():
                if self.metrics.openings != openings:
                    openings, self.view.losses = self.metrics.openings, []
                self._add_step(step)
        return self.view

    def _add_event(self, event: dict) -> None:
        view, kind = self.view, event.get("event")
        run, start = view.start.get("run"), view.start.get("start")
        if kind == "start":
            if event.get("run") != run:
                view = self.view = RunView()
            view.start, view.end, view.warning = event, {}, ""
            view.starts += 1
        elif event.get("run", run) != run:
            return
        elif kind == "checkpoint":
            view.checkpoint = event
        elif kind == "warning":
            view.warning = str(event.get("text", ""))
        elif kind == "end" and event.get("start", start) == start:
            view.end = event

    def _add_step(self, step: dict) -> None:
        view = self.view
        run = view.start.get("run")
        if "step" not in step or "event" in step or (run and step.get("run", run) != run):
            return
        view.step |= {key: as_number(value) for key, value in step.items() if not isinstance(value, (str, list))}
        if labels := validation_losses(step):
            view.validation = {label: as_number(step[key]) for key, label in labels.items()}
            view.validation_step = as_number(step["step"])
        if isinstance(step.get("rank_seconds"), list):
            view.rank_seconds = [as_number(value) for value in step["rank_seconds"]]
        view.losses.append(as_number(step.get("loss")))
        if len(view.losses) > MOST_LOSSES:
            del view.losses[: MOST_LOSSES // 2]
