"""What becomes of a job when its run ends, with the real train.sbatch and Slurm and a stand-in for mpzero."""

import json
import re

import pytest

pytestmark = pytest.mark.slurm

BLAMES_NODE0_ONCE = """
train() {
  hostname >>"$folder/hosts.$restart"
  ((restart == 0)) || exit 0
  save 3
  sleep 0.5
  blame node0 "it broke"
  exit 1
}"""


def test_a_run_that_failed_is_requeued_without_the_host_that_is_blamed(run):
    run.stand_in("""
train() {
  hostname >>"$folder/hosts.$restart"
  ((restart == 0)) || exit 0
  save 4
  sleep 1
  blame node1 "rank 2 on node1 did not answer"
  exit 1
}""")
    job = run.submit()
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert sorted(set(run.lines("hosts.0"))) == ["node0", "node1"]
    assert sorted(set(run.lines("hosts.1"))) == ["node0", "node2"]
    assert "rank 2 on node1 did not answer" in job.text()
    assert "Excluded from now on: node1." in job.text()
    assert "resumes from step 4" in job.text()
    assert not list((run.folder / "checkpoints").glob("restarts*"))


def test_a_job_of_one_or_two_nodes_continues_with_the_nodes_that_are_left(run):
    run.stand_in(BLAMES_NODE0_ONCE)
    job = run.submit("--nodes=1-2", "--exclude=node2")
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert (set(run.lines("hosts.0")), set(run.lines("hosts.1"))) == ({"node0", "node1"}, {"node1"}), job.text()


def test_a_job_that_needs_both_nodes_starts_on_both_again(run):
    """By then one of them has ended its part of the job, and Slurm counts one node only."""
    run.stand_in(BLAMES_NODE0_ONCE)
    job = run.submit("--nodes=2", "--exclude=node2", "--comment=billed to: a team")
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert set(run.lines("hosts.1")) == {"node0", "node1"}, job.text()
    assert "only 1 other node in partition all can run a job of 2 nodes" in job.text()
    comment = run.cluster.run(["squeue", "--noheader", "--states=all", f"--jobs={job.number}", "--format=%k"]).stdout
    assert comment.startswith("billed to: a team; mpzero 2"), comment


def test_an_array_has_one_log_a_task_with_losses_and_warnings_of_all_starts(run):
    run.stand_in("""
train() {
  echo "Batch $restart Loss: 2.5, lr: 0.1"
  echo "mpzero: warning: start $restart of $SLURM_ARRAY_TASK_ID" >&2
  save $((restart + 3))
  ((restart == 0)) || exit 0
  blame node0 "it broke"
  exit 1
}""")
    submitted = run.start("--nodes=1", "--array=3-4%1", NPROC="1", MODEL_TYPE="qwen2_5_7b", TOKENIZER="bytes")
    for task in (3, 4):
        job = type(submitted)(run.cluster, submitted.number, task).wait()
        assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
        assert job.fields["JobName"] == "qwen2_5_7b-mpzero"
        text = (run.folder / f"logs/qwen2_5_7b-mpzero_{submitted.number}_{task}.out").read_text()
        words = ["Batch 0 Loss", f"start 0 of {task}", "Batch 1 Loss", f"start 1 of {task}"]
        assert [word for line in text.splitlines() for word in words if word in line] == words
        assert f"start 0 of {7 - task}" not in text
    assert len(list((run.folder / "logs").iterdir())) == 2


def test_a_rank_that_is_killed_ends_the_run_and_is_blamed_by_the_evidence_of_the_others(run):
    # Rank 0, on the same host, sees that rank 1 is dead.
    run.stand_in("""
train() {
  local ready=$folder/ready.$restart
  [[ $rank != 1 ]] || { until [[ -e $ready.0 && -e $ready.2 && -e $ready.3 ]]; do sleep 0.1; done; kill -9 $$; }
  trap 'leave; exit 1' TERM
  echo >"$ready.$rank"
  while :; do sleep 0.1 || true; done
}
leave() {
  local start=$checkpoints/failures/20261126T12000${restart}Z-01234567
  mkdir -p "$start"
  printf '{"job": "%s", "restart": %s, "ranks": 4, "hosts": ["node0", "node0", "node1", "node1"]}' \\
    "$SLURM_JOB_ID" "$restart" >"$start/start.json.$rank"
  mv "$start/start.json.$rank" "$start/start.json"
  printf '{"why": "signal", "time": %s, "neighbours": [{"rank": %d, "alive": %s, "pid": 7}]}' "$(date +%s)" \\
    $((rank ^ 1)) "$( ((rank == 0)) && echo false || echo true)" >"$start/rank_$rank.json"
}""")
    job = run.submit(MAX_RESTARTS="0")
    assert (job.state, job.exit_code, job.restarts) == ("FAILED", 1, 0), job.text()
    # The launcher has ended the others with SIGTERM, at which they leave their evidence.
    report = json.loads((run.folder / "checkpoints/failure.json").read_text())
    assert (report["ranks"], report["hosts"]) == ([1], ["node0"]), job.text()


STOPPABLE = """
train() {
  ((restart == 0)) || exit 0
  until_signalled
  save 5
  sleep 0.5
  exit 75
}"""


# What Slurm sends for --signal=B:USR1@…: the signal to the batch shell alone; for --signal=HUP@… to the steps alone.
@pytest.mark.parametrize(
    ("launcher", "signal"),
    [
        ("srun", "--batch --signal=USR1"),
        ("mpirun", "--signal=HUP"),
    ],
)
def test_the_signal_before_the_time_limit_reaches_every_rank(run, launcher, signal):
    run.stand_in(STOPPABLE)
    path = {"PATH": run.path_without_pmix()} if launcher == "mpirun" else {}
    job = run.start(**path)
    job.wait_until(lambda: len(run.lines("waiting")) == 4)
    run.cluster.run(["scancel", *signal.split(), str(job.number)])
    job.wait()
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert sorted(line.split()[0] for line in run.lines("signals")) == ["0", "1", "2", "3"]


def test_a_job_that_is_preempted_under_mpirun_saves_and_resumes_later(run):
    run.stand_in(STOPPABLE)
    job = run.start(PATH=run.path_without_pmix())
    job.wait_until(lambda: len(run.lines("waiting")) == 4)
    urgent = run.cluster.submit(
        ["--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap", "true"], cwd=run.folder
    )
    urgent.wait()
    job.wait()
    assert urgent.state == "COMPLETED"
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert sorted(line.split()[0] for line in run.lines("signals")) == ["0", "1", "2", "3"]


def test_a_preemption_before_the_first_step_is_a_stop(run):
    # Only the ranks hear of it, and end by the signal itself.
    run.stand_in("""
doctor() { ((restart == 0)) || exit 0; touch "$folder/looking.$rank"; exec sleep 300; }
train() { exit 0; }""")
    job = run.start()
    job.wait_until(lambda: len(list(run.folder.glob("looking.*"))) == 4)
    urgent = run.cluster.submit(
        ["--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap", "true"], cwd=run.folder
    )
    urgent.wait()
    job.wait()
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert "The run was stopped" in job.text() and "failed with status" not in job.text()


def test_a_run_has_the_grace_period_that_it_was_given(run):
    run.stand_in(STOPPABLE)
    # The signal that Slurm sends would come 100 seconds too late.
    options = ("--nodes=1", "--time=2", "--signal=B:USR1@5")
    job = run.submit(*options, NPROC="1", flags=("--grace_period", "105"))
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert "GRACE_PERIOD is 105 s: stopping the run" in job.text()
    # By the job's own words, and not when Slurm's signal came.
    left = re.search(r"(\d+) s left, and GRACE_PERIOD is 105 s", job.text())
    assert left and 5 < int(left.group(1)) <= 105, job.text()


def test_a_step_that_slurm_does_not_create_ends_the_job(run):
    run.stand_in("train() { exit 0; }")
    path = run.path_with("srun", 'set -- "${@/#--nodes=1/--nodelist=node7}"')
    job = run.submit("--nodes=1", NPROC="1", PATH=path, MPZERO_RETRY_SECONDS="0")
    assert (job.state, job.exit_code, job.restarts) == ("FAILED", 2, 0), job.text()
    text = job.error.read_text()
    assert text.count("Unable to create step for job") == 3
    assert text.count("The ranks have not run") == 1


def test_the_grace_period_is_the_partitions_or_the_signals(run):
    run.stand_in("train() { exit 0; }")
    run.submit("--nodes=1", NPROC="1", STUCK_AFTER="77")
    flags = run.lines("train.flags")
    assert flags[flags.index("--grace_period") + 1] == "60"
    assert flags[flags.index("--stuck_after") + 1] == "77"
    run.submit("--nodes=1", "--partition=urgent", NPROC="1", SBATCH_SIGNAL="B:USR1@200")
    flags = run.lines("train.flags")
    assert flags[flags.index("--grace_period") + 1] == "200"


def test_a_cancelled_job_stays_cancelled(run):
    run.stand_in(STOPPABLE)
    job = run.start()
    job.wait_until(lambda: len(run.lines("waiting")) == 4)
    run.cluster.run(["scancel", str(job.number)])
    job.wait()
    assert (job.state, job.restarts) == ("CANCELLED", 0), job.text()
    assert run.tag() == "qwen3_tiny-5steps"


def test_a_node_that_slurm_takes_down_is_replaced(run):
    run.stand_in("""
train() {
  hostname >>"$folder/hosts.$restart"
  ((restart == 0)) || exit 0
  save 2
  exec sleep 3600
}""")
    job = run.start()
    job.wait_until(lambda: len(run.lines("hosts.0")) == 4)
    run.cluster.run(["scontrol", "update", "NodeName=node0", "State=DOWN", "Reason=test"])
    try:
        job.wait()
    finally:
        run.cluster.run(["scontrol", "update", "NodeName=node0", "State=RESUME"])
    assert (job.state, job.restarts) == ("COMPLETED", 1), job.text()
    assert set(run.lines("hosts.1")) == {"node1", "node2"}, job.text()
