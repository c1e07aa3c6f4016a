"""Destinations of metrics. TensorBoard, W&B and MLflow require packages that mpzero does not install."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from run_files.metric_names import validation_losses

from run_follow.following import Row, Sink, encodable, start_of, unusable
from run_follow.train_job import TrainJobStatus

ROOT = Path(__file__).resolve().parents[2]

# TensorBoard groups tags by the prefix before the slash.
GROUPS = {
    "loss": "loss/train",
    "lr": "optimizer/lr",
    "grad_norm": "optimizer/grad_norm",
    "tokens": "progress/tokens",
    "tokens_per_second": "throughput/tokens_per_second",
    "mfu": "throughput/mfu",
    "step_seconds": "time/step_seconds",
    "peak_memory_bytes": "memory/peak_memory_bytes",
    "peak_allocated_bytes": "memory/peak_allocated_bytes",
    "slowest_rank": "ranks/slowest_rank",
    "slowest_rank_share": "ranks/slowest_rank_share",
}


class SinkMissing(Exception):
    """Raised if the package that a sink requires is not installed; the message is one sentence."""


def tag_of(metric: str) -> str:
    if label := validation_losses([metric]).get(metric):
        return "loss/" + label.replace(" ", "_")
    return GROUPS.get(metric) or (f"time/{metric}" if metric.endswith("_seconds") else f"other/{metric}")


@contextlib.contextmanager
def needs(package: str) -> Iterator[None]:
    """Raises SinkMissing if an import fails."""
    try:
        yield
    except ImportError as error:
        raise SinkMissing(
            f"{package} is not installed: install it into mpzero's environment with '{install_command(package)}'."
        ) from error


def install_command(package: str) -> str:
    """Returns an install command for this machine: uses uv if available, otherwise pip."""
    python = shlex.quote(sys.executable)
    for uv in ("uv", Path.home() / ".local/bin/uv", ROOT / ".venv-uv/bin/uv"):
        if shutil.which(uv):
            return f"{shlex.quote(str(uv))} pip install --python {python} {package}"
    return f"{python} -m ensurepip && {python} -m pip install {package}"


class TensorBoard(Sink):
    """Event files in FOLDER/NAME-ID. NAME: name of the run's folder. ID: id of the run."""

    most_unsaved = 1000  # a repeated step replaces the earlier one

    def __init__(self, folder: Path, project: str):
        with needs("tensorboard"):
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        self.event, self.session, self.summary, self.record_writer = Event, SessionLog, Summary, RecordWriter
        self.folder = folder
        self.run_folder: Path | None = None
        self.writer: RecordWriter | None = None

    @property
    def target(self) -> str:
        return f"TensorBoard files in {self.folder}"

    def begin(self, run_id: str, first_step: int) -> None:
        self.close()
        self.run_folder = self._folder_of(run_id)
        self.rewind(first_step)

    def write(self, row: Row) -> None:
        values = [self.summary.Value(tag=tag_of(name), simple_value=value) for name, value in row.values.items()]
        self._add(wall_time=row.time, step=row.step, summary=self.summary(value=values))

    def rewind(self, step: int) -> None:
        """Starts a new file. TensorBoard reads it last, and then ignores steps from `step` on in the older files."""
        self.close()
        try:
            self.run_folder.mkdir(parents=True, exist_ok=True)
            self.writer = self.record_writer(self._next_file().open("xb"))
        except OSError as error:
            raise unusable(self.run_folder, "written", error) from error
        now = time.time()
        self._add(wall_time=now, file_version="brain.Event:2")
        self._add(wall_time=now, step=step, session_log=self.session(status=self.session.START))

    def flush(self) -> None:
        if self.writer is not None:
            self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.writer = None

    def _add(self, **fields) -> None:
        try:
            self.writer.write(self.event(**fields).SerializeToString())
        except OSError as error:
            raise unusable(self.run_folder, "written", error) from error

    def _folder_of(self, run_id: str) -> Path:
        """Returns the run's folder: an existing one with any NAME, or ID alone (older versions), else a new one."""
        for folder in (self.folder / run_id, *sorted(self.folder.glob(f"*-{run_id}"))):
            if next(folder.glob("events.out.tfevents.*"), None):
                return folder
        name = encodable(self.metrics.resolve().parent.name) if self.metrics else "run"
        return self.folder / f"{name}-{run_id}"

    def _next_file(self) -> Path:
        """TensorBoard reads files in the order of their names, which contain a timestamp. The new name sorts last even
        if this node's clock is behind."""
        names = (path.name.split(".") for path in self.run_folder.glob("events.out.tfevents.*"))
        times = [int(name[3]) for name in names if len(name) > 3 and name[3].isdecimal()]
        second = max(int(time.time()), max(times, default=0) + 1)
        return self.run_folder / f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}"


class WeightsAndBiases(Sink):
    """A W&B run with the run's id. The x axis is the "step" metric, which may decrease."""

    def __init__(self, folder: Path, project: str):
        with needs("wandb"):
            import wandb
        self.wandb = wandb
        self.folder, self.project = folder, project
        self.run = None

    @property
    def target(self) -> str:
        return f"the W&B project {self.project}"

    def begin(self, run_id: str, first_step: int) -> None:
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        name, config = start_of(self.metrics, run_id)
        self.run = self.wandb.init(
            project=self.project, id=run_id, resume="allow", dir=str(self.folder), name=name, config=config
        )
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def write(self, row: Row) -> None:
        self.run.log({tag_of(metric): value for metric, value in row.values.items()} | {"step": row.step})

    def close(self) -> None:
        if self.run is not None:
            self.run.finish()
        self.run = None


class MLflow(Sink):
    """An MLflow run with the tag mpzero.run."""

    def __init__(self, folder: Path, project: str):
        with needs("mlflow"):
            import mlflow
        self.metric, self.param = mlflow.entities.Metric, mlflow.entities.Param
        self.client = mlflow.MlflowClient()
        self.uri, self.project = mlflow.get_tracking_uri(), project
        self.id: str | None = None

    @property
    def target(self) -> str:
        return f"the MLflow experiment {self.project} at {self.uri}"

    def begin(self, run_id: str, first_step: int) -> None:
        self.close()
        experiment = self.client.get_experiment_by_name(self.project)
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment(self.project)
        found = self.client.search_runs([experiment_id], f"tags.`mpzero.run` = '{run_id}'", max_results=1)
        name, config = start_of(self.metrics, run_id)
        run = found[0] if found else self.client.create_run(experiment_id, tags={"mpzero.run": run_id}, run_name=name)
        self.id = run.info.run_id
        if found:
            self.client.update_run(self.id, status="RUNNING")
        # MLflow parameters are immutable, so a start with different settings keeps the first values.
        known = run.data.params if found else {}
        params = [self.param(key, str(value)[:500]) for key, value in config.items() if key not in known]
        self.client.log_batch(self.id, params=params)

    def write(self, row: Row) -> None:
        milliseconds = round(row.time * 1000)
        values = [self.metric(tag_of(name), value, milliseconds, row.step) for name, value in row.values.items()]
        self.client.log_batch(self.id, metrics=values)

    def close(self) -> None:
        if self.id is not None:
            self.client.set_terminated(self.id)
        self.id = None


SINKS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow, "trainjob": TrainJobStatus}
