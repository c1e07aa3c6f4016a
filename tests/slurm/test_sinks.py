"""SINK=tensorboard sbatch train.sbatch on a virtual cluster, and what TensorBoard then shows."""

import subprocess

import pytest
from conftest import REPOSITORY

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("built")]
accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def shown(run) -> list[int]:
    """The steps of the one run that TensorBoard has."""
    files = (run.folder / "checkpoints/tensorboard").glob("*/events.out.tfevents.*")
    (folder,) = {path.parent for path in files}
    assert folder.name == f"checkpoints-{run.metrics()[0]['run']}"
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars("loss/train")]


def test_a_requeued_job_continues_the_run_of_its_sink(run):
    job = run.start(SINK="tensorboard", MAX_STEPS="100000", CHECKPOINT_FREQ="0")
    job.wait_until(lambda: len(run.steps()) > 2)
    # What Slurm sends for --signal=B:USR1@…: the signal to the batch shell alone.
    run.cluster.run(["scancel", "--batch", "--signal=USR1", str(job.number)])
    job.wait_until(lambda: "Resumed from checkpoint" in job.text())
    before = len(run.steps())
    job.wait_until(lambda: len(run.steps()) > before)
    run.cluster.run(["scancel", str(job.number)])
    job.wait()
    # Slurm may have ended the follower before its last pass: what is missing is passed on by the next one.
    program = [REPOSITORY / ".venv/bin/python", REPOSITORY / "app/follow.py", run.folder / "checkpoints", "--once"]
    subprocess.run(program, check=True)
    assert shown(run) == run.steps()
