"""Decisions that once lost a job or blamed the wrong host: the real train.sbatch and Slurm, a stand-in for mpzero."""

import shutil
import time

import pytest
from virtual_slurm import SYSTEM_PATH, Job

pytestmark = pytest.mark.slurm


def test_a_task_of_a_job_array_is_requeued_alone(run):
    run.stand_in("""
train() {
  [[ $rank != 0 ]] || echo "$SLURM_ARRAY_TASK_ID $restart" >>"$folder/starts"
  [[ $SLURM_ARRAY_TASK_ID.$restart == 1.0 ]] || exit 0
  save 4
  blame node0 "rank 0 on node0 did not answer"
  sleep 0.5
  exit 1
}""")
    # The last task has the number of the array, and runs when the other has finished.
    submitted = run.start("--nodes=1", "--array=0-1%1", NPROC="1")
    task = Job(run.cluster, submitted.number, task=1).wait()
    assert (task.state, task.restarts) == ("COMPLETED", 1), task.text()
    assert task.fields["JobId"] == task.fields["ArrayJobId"] and task.fields["ExcNodeList"] == "node0"
    assert run.lines("starts") == ["0 0", "1 0", "1 1"]
    assert not list((run.folder / "checkpoints").glob("restarts*"))


def test_a_node_on_which_no_task_starts_is_left_out(run):
    run.stand_in('train() { hostname >>"$folder/hosts.$restart"; exit 0; }')
    node, program = run.cluster.node_process(1), shutil.which("slurmstepd", path=SYSTEM_PATH)
    run.cluster.inside(node, ["mount", "--bind", "/bin/false", program])
    try:
        job = run.submit()
    finally:
        run.cluster.inside(node, ["umount", program])
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert "srun could not start tasks on node1" in job.text() and "Excluded from now on: node1." in job.text()
    assert set(run.lines("hosts.1")) == {"node0", "node2"}, job.text()


# Each command takes many seconds to find out that no controller is there.
@pytest.mark.nightly
def test_a_controller_that_is_away_for_longer_than_ten_attempts_loses_no_job(run):
    run.stand_in("""
train() {
  ((restart == 0)) || exit 0
  touch "$folder/training"
  until [[ -e "$folder/away" ]]; do sleep 0.1; done
  exit 1
}""")
    job = run.start("--nodes=1", NPROC="1", MPZERO_RETRY_SECONDS="0")
    job.wait_until(lambda: (run.folder / "training").exists())
    run.cluster.stop_controller()
    try:
        (run.folder / "away").touch()
        deadline = time.monotonic() + 300
        while "The job keeps its nodes; retrying until" not in job.text():
            assert time.monotonic() < deadline, job.text()
            time.sleep(0.2)
    finally:
        run.cluster.start_controller()
    job.wait()
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
