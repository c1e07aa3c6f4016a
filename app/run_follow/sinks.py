"""Where steps are passed on to. Each sink needs a package that mpzero does not install by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from run_follow.following import Row

# TensorBoard groups tags by what is before the slash.
GROUPS = {
    "loss": "loss/train",
    "validation_loss": "loss/validation",
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
    """The package of a sink is not installed; the text is one sentence."""


class Sink(Protocol):
    run_id: str

    def write(self, row: Row) -> None: ...
    def rewind(self, step: int) -> None:
        """The run has gone back: what was passed on of this step and later ones is no longer part of it."""

    def flush(self) -> None: ...
    def close(self) -> None: ...


def tag_of(metric: str) -> str:
    return GROUPS.get(metric) or (f"time/{metric}" if metric.endswith("_seconds") else f"other/{metric}")


def missing(package: str) -> SinkMissing:
    return SinkMissing(f"{package} is not installed: 'uv pip install {package}' installs it into mpzero's .venv.")


class TensorBoard:
    """Event files in FOLDER/RUN."""

    def __init__(self, run_id: str, first_step: int, folder: Path, project: str):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise missing("tensorboard") from error
        self.run_id = run_id
        self.folder = folder / run_id
        self.new_writer = SummaryWriter
        # Of what an earlier follower has passed on, TensorBoard leaves out the steps from this one on.
        self.writer = self.new_writer(str(self.folder), purge_step=first_step)

    def write(self, row: Row) -> None:
        for metric, value in row.values.items():
            self.writer.add_scalar(tag_of(metric), value, row.step, walltime=row.time)

    def rewind(self, step: int) -> None:
        self.writer.close()
        self.writer = self.new_writer(str(self.folder), purge_step=step)

    def flush(self) -> None:
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """A run of W&B with the id of the run. Its curves are drawn over the metric "step", which may go back."""

    def __init__(self, run_id: str, first_step: int, folder: Path, project: str):
        try:
            import wandb
        except ImportError as error:
            raise missing("wandb") from error
        self.run_id = run_id
        self.run = wandb.init(project=project, id=run_id, resume="allow")
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def write(self, row: Row) -> None:
        self.run.log({tag_of(metric): value for metric, value in row.values.items()} | {"step": row.step})

    def rewind(self, step: int) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """A run of MLflow with the tag mpzero.run."""

    def __init__(self, run_id: str, first_step: int, folder: Path, project: str):
        try:
            import mlflow
        except ImportError as error:
            raise missing("mlflow") from error
        self.run_id = run_id
        self.metric = mlflow.entities.Metric
        self.client = mlflow.MlflowClient()
        experiment = self.client.get_experiment_by_name(project)
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment(project)
        found = self.client.search_runs([experiment_id], f"tags.`mpzero.run` = '{run_id}'", max_results=1)
        run = found[0] if found else self.client.create_run(experiment_id, tags={"mpzero.run": run_id}, run_name=run_id)
        self.id = run.info.run_id

    def write(self, row: Row) -> None:
        milliseconds = round(row.time * 1000)
        values = [self.metric(tag_of(name), value, milliseconds, row.step) for name, value in row.values.items()]
        self.client.log_batch(self.id, metrics=values)

    def rewind(self, step: int) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.client.set_terminated(self.id)


SINKS = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}
