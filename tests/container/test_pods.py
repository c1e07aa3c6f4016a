"""container/launch and container/node in virtual pods, with real sshd, mpirun and mpzero: runs, stops, failures.

The variables that Kubeflow Trainer sets are set. No API server is there: what JobSet does with an exit status is not
tried here (tests/kubernetes/test_manifests.py compares the statuses with its rules).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from virtual_pods import ROOT, SYSTEM_PATH, VirtualPods, reason_to_skip

BUILD = Path(os.environ.get("BUILD_DIR") or ROOT / "build")
REASON = reason_to_skip() or ("mpzero is not built" if not (BUILD / "bin/mpzero").exists() else None)
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

# The pods share the cores of one machine, which Open MPI does not know: ranks that wait give way.
RUN = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "BUILD_DIR": str(BUILD),
    "MODEL_TYPE": "qwen3_tiny",
    "SEQ_LENGTH": "32",
    "CHECKPOINT_FREQ": "0",
    "CHECK_NODES": "false",
}
FLAGS = ["--logging_freq", "1", "--validation_freq", "0"]


@pytest.fixture
def pods():
    with VirtualPods(nodes=3) as made:
        yield made


def steps(pods: VirtualPods) -> dict[int, float]:
    lines = (pods.folder / "fsx/checkpoints/metrics.jsonl").read_text().splitlines()
    return {entry["step"]: entry["loss"] for entry in map(json.loads, lines) if "step" in entry}


def newest(pods: VirtualPods) -> str:
    return (pods.folder / "fsx/checkpoints/latest").read_text().strip()


def test_a_run_trains_on_every_pod_and_the_doctor_finds_nothing(pods):
    pods.start_nodes(**RUN)
    launcher = pods.launch(*FLAGS, **{**RUN, "CHECK_NODES": "true"}, MAX_STEPS="4")
    assert launcher.wait() == 0, launcher.output()
    said = launcher.output()
    assert "3 hosts: 0 failures" in said or "ok (" in said, said
    # With Open MPI 5 the controller's variables alone start all ranks on the launcher.
    assert "3 ranks" in said and "between hosts: " in said
    assert set(steps(pods)) == {1, 2, 3, 4}
    report = json.loads((pods.folder / "fsx/checkpoints/doctor.json").read_text())
    names = {host["host"] for host in report["hosts"]}
    # By which others reach them.
    assert names == {f"{name}.tiny.default.svc.cluster.local" for name in [*pods.node_names, pods.launcher_name]}


def test_sigterm_to_the_launcher_saves_and_the_next_start_ends_with_the_same_bits(pods):
    pods.start_nodes(**RUN)
    launcher = pods.launch(*FLAGS, **RUN, MAX_STEPS="12")
    assert launcher.wait() == 0, launcher.output()
    uninterrupted = steps(pods)
    pods.end()

    other = {**RUN, "CHECKPOINT_DIR": str(pods.folder / "fsx/other"), "MPZERO_JOB": "uid-2"}
    pods.start_nodes(**RUN)
    launcher = pods.launch(*FLAGS, **other, MAX_STEPS="12")
    launcher.wait_for("Batch 3 ")
    launcher.signal("TERM")
    assert launcher.wait() == 75, launcher.output()
    assert "The run was stopped and has saved a checkpoint" in launcher.output()
    # All pods are new ones, as after a restart of the JobSet.
    pods.end()
    pods.start_nodes(**RUN)
    launcher = pods.launch(*FLAGS, **other, MAX_STEPS="12")
    assert launcher.wait() == 0, launcher.output()
    lines = (pods.folder / "fsx/other/metrics.jsonl").read_text().splitlines()
    resumed = {entry["step"]: entry["loss"] for entry in map(json.loads, lines) if "step" in entry}
    assert resumed == uninterrupted


def test_sigterm_to_another_pod_saves_and_that_pod_stays_until_its_ranks_have(pods):
    pods.start_nodes(**RUN)
    launcher = pods.launch(*FLAGS, **RUN, MAX_STEPS="100000")
    launcher.wait_for("Batch 3 ")
    pods.nodes[1].signal("TERM")
    assert launcher.wait() == 75, launcher.output()
    assert pods.nodes[1].wait() == 143
    assert "its ranks will save and stop" in pods.nodes[1].output()
    assert "steps" in newest(pods)
    assert pods.nodes[0].process.poll() is None


def test_a_pod_that_is_killed_ends_the_run_and_the_next_start_resumes(pods):
    flags = [*FLAGS, "--checkpoint_freq", "2"]
    pods.start_nodes(**RUN)
    launcher = pods.launch(*flags, **RUN, MAX_STEPS="100000")
    launcher.wait_for("Batch 5 ")
    pods.nodes[0].signal("KILL")
    assert launcher.wait() == 1, launcher.output()
    assert "the next start resumes from" in launcher.output()
    before = int(newest(pods).rsplit("-", 1)[1].removesuffix("steps"))
    assert before >= 2
    pods.end()
    pods.start_nodes(**RUN)
    launcher = pods.launch(*flags, **RUN, MAX_STEPS=str(before + 2))
    assert launcher.wait() == 0, launcher.output()
    assert f"Resumed from checkpoint at step {before}" in launcher.output()


def test_an_mpirun_that_does_not_end_with_its_ranks_is_ended(pods):
    """As that of Open MPI 5 was seen to do."""
    program = pods.folder / "bin/mpirun"
    program.parent.mkdir()
    program.write_text('#!/bin/bash\nPATH=${PATH#*:}\nmpirun "$@"\n[[ $* != *" train "* ]] || sleep 3600\n')
    program.chmod(0o755)
    pods.start_nodes(**RUN)
    path = f"{program.parent}:{SYSTEM_PATH}"
    launcher = pods.launch(*FLAGS, **RUN, MAX_STEPS="1", PATH=path, MPZERO_MPIRUN_PATIENCE="3")
    assert launcher.wait() == 1, launcher.output()
    assert "mpirun is still running 3 s after" in launcher.output()
    # What was done is done.
    launcher = pods.launch(*FLAGS, **RUN, MAX_STEPS="1")
    assert launcher.wait() == 0, launcher.output()
