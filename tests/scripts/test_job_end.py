"""What a job asks of Slurm when its run has ended, with stand-ins for Slurm."""

import json
import re
import sys

import pytest
from evidence import Evidence, blame

NO_ANSWER = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(
    ("status", "record", "failures"),
    [
        (75, "true", "0"),
        (1, "MPZERO_STOP=USR1", "0"),
        (143, "MPZERO_STOP=TERM", "0"),
        (143, "true", "1"),
        (138, "true", "1"),
        (143, "preempted=2026-11-21T12:43:58", "0"),
        (1, "preempted=2026-11-21T12:43:58", "0"),
        (137, "preempted=2026-11-21T12:43:58; state=SIGNALING", "0"),
        (138, 'ends_at=$(date --date="+340 seconds" +%Y-%m-%dT%H:%M:%S)', "0"),
        (138, 'ends_at=$(date --date="+900 seconds" +%Y-%m-%dT%H:%M:%S)', "1"),
    ],
)
def test_a_signal_is_a_stop_only_where_someone_asked_for_one(job, status, record, failures):
    result = job(f"begin_run; {record}; end_run {status}")
    assert result.returncode == status
    assert ("The run was stopped" in result.stdout) == (failures == "0"), result.stdout
    assert job.requeued() and job.state()["failures"] == int(failures)


@pytest.mark.parametrize(
    ("slurm", "asked"),
    [
        ("version=24.05.0", False),
        ("version=25.11.7", False),
        ("version=23.11.11", True),
        ("version=25.11.7 preempted=None", True),
        ("version=25.11.7 requeue=0", True),
        ("version=25.11.7 mode=CANCEL", True),
        ("version=25.11.7 type=qos", True),
    ],
)
def test_slurm_is_not_asked_for_the_requeue_that_it_makes_itself(job, slurm, asked):
    result = job(f"preempted=2026-11-21T12:43:58; {slurm}; begin_run; end_run 75")
    assert (result.returncode, job.requeued()) == (75, asked), result.stderr
    assert ("Slurm requeues the job when it ends" in result.stdout) != asked


@pytest.mark.parametrize("state", ["SIGNALING", "RESIZING", "SUSPENDED", "CONFIGURING"])
def test_a_job_that_has_its_nodes_is_requeued_in_whatever_state_slurm_shows_it(job, state):
    """A job that is preempted is SIGNALING until all of its nodes have got the signal."""
    result = job(f"preempted=2026-11-21T12:43:58; state={state}; begin_run; end_run 75")
    assert job.requeued() and "ended this job" not in result.stdout, result.stderr
    (job.checkout.root / "scripts/requeue/command.py").unlink()
    assert job(f"state={state}; end_run 75").returncode == 75
    assert job.checkout.calls().count("scontrol requeue") == 2


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("", "Slurm has ended this job (scancel or the time limit): the job will not be requeued"),
        ('echo >>"$RECORD/requeues"', "Slurm has requeued this job"),
    ],
)
def test_a_job_that_slurm_is_ending_says_what_becomes_of_it(job, what, sentence):
    result = job(f"begin_run; state=COMPLETING; {what or ':'}; end_run 143")
    assert sentence in result.stdout, result.stdout + result.stderr
    # Only a job that starts again resumes itself.
    assert ("the same job" in result.stdout) == bool(what)
    assert not job.requeued()


@pytest.mark.parametrize("late", ["", "rank_1.json"])
def test_a_user_error_that_the_file_system_shows_late_is_not_requeued(job, late):
    found = Evidence(job.checkpoints, hosts=1)
    found.rank(1, "user_error", error="--seq_length 7 does not fit")
    found.rank(0, "communicator_error")
    path = found.folder / late
    path.rename(job.checkout.root / "late")
    result = job(f"begin_run; (sleep 1; mv late {path}) & export MPZERO_RETRY_SECONDS=1; end_run 143")
    assert (result.returncode, job.requeued()) == (2, False), result.stdout + result.stderr


def test_a_job_of_one_start_has_started_one_time(job):
    result = job("MAX_RESTARTS=0; begin_run; end_run 75")
    assert "stopped 1 time in a row" in result.stderr, result.stdout + result.stderr


BY_MUNGE = "kill -PIPE $$"  # what a munge that is too busy does to a command of Slurm
SILENT = f'echo "{NO_ANSWER}" >&2; exit 1'


def test_a_controller_that_is_silent_for_a_while_does_not_lose_the_job(job):
    job.replace("scontrol", f'echo try >>"$RECORD/tries"; (($(wc -l <"$RECORD/tries") % 4 == 0)) || {{ {SILENT}; }}')
    result = job("begin_run; end_run 1")
    assert job.requeued() and "ending this job" not in result.stdout, result.stdout + result.stderr


def test_a_job_of_unknown_state_is_requeued_nevertheless(job):
    job.replace("scontrol", f'[[ $1 == requeue ]] || {{ called scontrol "$@"; {SILENT}; }}')
    result = job("begin_run; end_run 1")
    assert job.requeued() and "ending this job" not in result.stdout, result.stdout + result.stderr
    # Asked ten times whether Slurm preempts it, ten times for its state before the requeue, and ten times after it.
    assert job.checkout.calls().count("scontrol show job 7\n") == 30


@pytest.mark.parametrize(
    ("first", "second", "calls"),
    [
        ("Unexpected message received for job 7", "Job is pending execution for job 7", 2),
        ("Job requeue is disabled", "", 1),
    ],
)
def test_what_slurm_answers_to_a_requeue(job, first, second, calls):
    blame(job.checkpoints)
    job.replace(
        "scontrol",
        f"""[[ $1 == requeue ]] || exec "{job.slurm}/scontrol" "$@"
called scontrol "$@"
echo >>"$RECORD/requeues"
if (($(grep -c requeue "$RECORD/calls") == 1)); then echo "{first}" >&2; else echo "{second}" >&2; fi
exit 1""",
    )
    result = job("begin_run; end_run 1")
    assert job.checkout.calls().count("scontrol requeue Incomplete 7\n") == calls
    assert ("Slurm did not requeue the job (Job requeue is disabled)" in result.stderr) == (calls == 1)
    assert ("Excluded from now on: node1." in result.stdout) == (calls == 2), result.stdout + result.stderr


def test_hosts_are_found_by_name_where_slurm_does_not_answer(job):
    blame(job.checkpoints)
    job.replace("scontrol", f'[[ "$1 $2" != "show node" ]] || {{ {SILENT}; }}')
    result = job("begin_run; end_run 1")
    assert "Excluded from now on: node1." in result.stdout, result.stderr


@pytest.mark.parametrize(
    ("slurm", "command", "excluded", "sentence"),
    [
        ("out=node3", "", "node3,node1", "Excluded from now on: node3,node1."),
        ("nodelist=node1", "", None, "cannot exclude node1, because the job requires node1 (--nodelist)"),
        ("nodelist=node2", "", "node1", "Excluded from now on: node1."),
        ("out=node2,node3", "", None, "only 1 other node in partition all can run a job of 2 nodes"),
        ("out=node2,node3 tasks=1", "", "node2,node3,node1", "Excluded from now on: node2,node3,node1."),
        ("out=node2,node3 tasks=16", "", None, "only 1 other node"),
        ("out=node2,node3 tasks=1 tasks_per_node=1", "", None, "only 1 other node"),
        ("out=node2,node3 tasks=", "", None, "only 1 other node"),
        # GPUs in all, on as many nodes as that took.
        ("out=node2,node3 tasks=1 wanted=TresPerJob=gres:gpu:6", "", None, "only 1 other node"),
        # Others of the partition have no such GPUs, or not the features.
        ("wanted=TresPerNode=gres:gpu:8 gres_of='gpu:8(S:0-1) gpu:8 (null) gpu:8'", "", "node1", "Excluded"),
        ("wanted=TresPerNode=gres:gpu:8 gres_of='gpu:8 gpu:8 (null) gpu:4'", "", None, "only 1 other node"),
        ("gres_of='gpu:8 gpu:8 (null) (null)'", "", "node1", "Excluded"),
        ("wanted=Features=a features_of='a,x a b b'", "", None, "only 1 other node"),
        ("wanted='Features=a&x' features_of='a,x x,a,y a,x,z b'", "", "node1", "Excluded"),
        ("wanted='Features=[a*1|b*1]' features_of='a b c b'", "", "node1", "Excluded"),
        ("wanted='Features=[a*1|b*1]' features_of='a b c c'", "", None, "only 1 other node"),
        ("", "sinfo", None, "cannot exclude node1, because Slurm does not respond"),
        ("", "scontrol update", "node1", "Slurm did not exclude node1"),
    ],
)  # fmt: skip
def test_a_blamed_node_is_left_out_where_enough_others_are_there(job, slurm, command, excluded, sentence):
    blame(job.checkpoints)
    if command:
        name, *words = command.split()
        job.replace(name, f'[[ $1 != "{"".join(words)}"* ]] || {{ called {name} "$@"; echo "not today" >&2; exit 1; }}')
    result = job(f"{slurm}\nbegin_run; end_run 1")
    assert sentence in result.stdout + result.stderr
    assert result.returncode == 1 and job.requeued()
    assert exclusions(job) == ([] if excluded is None else [f"scontrol update JobId=7 ExcNodeList={excluded}"])


def exclusions(job) -> list[str]:
    return [line for line in job.checkout.calls().splitlines() if line.startswith("scontrol update JobId=7 Exc")]


def comment(job) -> str:
    """What the job's comment says at last."""
    words = "scontrol update JobId=7 Comment="
    return [line.removeprefix(words) for line in job.checkout.calls().splitlines() if line.startswith(words)][-1]


@pytest.mark.parametrize(
    ("states", "left_out"),
    [
        ("allocated allocated drained drained", False),
        ("allocated allocated draining idle", True),
        ("allocated allocated down* drained", False),
        ("allocated allocated fail failing", False),
        ("allocated allocated idle* maint", False),
        ("allocated allocated reserved idle$", False),
        ("allocated allocated unknown future", False),
        # Busy with other jobs, or asleep in the cloud: Slurm will give them to the job.
        ("completing completing mixed drained", True),
        ("allocated allocated powered_down~ drained", True),
        ("allocated allocated allocated# drained", True),
    ],
)
def test_only_nodes_that_can_run_a_job_take_the_place_of_one_that_is_left_out(job, states, left_out):
    blame(job.checkpoints)
    result = job(f'states="{states}"; begin_run; end_run 1')
    assert (exclusions(job) != []) == left_out, result.stdout + result.stderr
    assert job.requeued()
    if not left_out:
        third, fourth = states.split()[2:]
        said = next(line for line in result.stderr.splitlines() if "cannot exclude" in line)
        assert f"(node2 is {third}, node3 is {fourth})" in said
        resumed = [state.rstrip("*") in {"down", "drained", "fail", "failing"} for state in (third, fourth)]
        assert ("scontrol update NodeName=node2,node3 State=RESUME" in said) == all(resumed)


def test_a_job_with_a_reservation_has_the_nodes_of_that_one(job):
    blame(job.checkpoints)
    own = 'reservation=mine states="reserved reserved idle idle"; begin_run; end_run 1'
    assert "only 1 other node in reservation mine can run a job of 2 nodes" in job(own).stderr
    assert exclusions(job) == []
    blame(job.checkpoints)
    job("forget_restarts; tasks=1; " + own)
    assert exclusions(job) == ["scontrol update JobId=7 ExcNodeList=node1"]


def test_a_pending_job_says_in_its_comment_why_and_what_to_do(job):
    blame(job.checkpoints)
    result = job("out=node3; begin_run; end_run 1")
    assert "requeued without node1; reason: rank 1 on node1 (pid 101): it broke (in step 5). " in comment(job), (
        result.stderr
    )
    assert "run 'scontrol update JobId=7 ExcNodeList=node3'" in comment(job)
    # The log says the same.
    assert comment(job).partition(". ")[2] in result.stdout


def test_a_job_that_waits_for_a_node_of_its_own_says_so(job):
    blame(job.checkpoints)
    result = job('states="allocated down* drained idle"; out=node3; begin_run; end_run 1')
    assert "1 more node" in result.stderr, result.stderr
    assert "node1 is down*, node2 is drained" in result.stderr and "node1 is down*" in comment(job)


def test_a_comment_of_the_users_own_stays(job):
    blame(job.checkpoints)
    job("comment='billed to: a team'; begin_run; end_run 1")
    assert comment(job).startswith("billed to: a team; mpzero 2")
    blame(job.checkpoints)
    job("forget_restarts; comment='billed to: a team; mpzero 2026-11-22 10:00: old words'; begin_run; end_run 1")
    assert comment(job).startswith("billed to: a team; mpzero 2") and "old words" not in comment(job)


def test_a_comment_that_reads_like_a_record_is_none(job):
    blame(job.checkpoints)
    result = job("comment='JobState=COMPLETING Reservation=mine ExcNodeList=node2'; begin_run; end_run 1")
    assert exclusions(job) == ["scontrol update JobId=7 ExcNodeList=node1"], result.stderr


def test_a_job_that_waits_for_what_its_hosts_share_says_so(job):
    found = {"status": "failure", "check": "checkpoint_write", "message": "no answer", "blame": "host"}
    for host in ("node0", "node1"):
        report = {"job": "7", "restart": 0, "hosts": [{"host": host, "findings": [found]}]}
        (job.checkpoints / f"doctor.json.{host}.hung").write_text(json.dumps(report))
    result = job("begin_run; refuse_hosts 124")
    assert "will start again in 10 minutes at the earliest" in result.stdout, result.stderr
    assert "hang in check checkpoint_write" in comment(job) and "StartTime=now" in comment(job)


def test_a_command_that_munge_ends_is_asked_again(job):
    blame(job.checkpoints)
    job.replace("scontrol", f'[[ $1 != update || -e $RECORD/twice ]] || {{ touch "$RECORD/twice"; {BY_MUNGE}; }}')
    result = job("begin_run; end_run 1")
    assert "Excluded from now on: node1." in result.stdout, result.stderr


@pytest.mark.parametrize(("started", "restart", "blamed"), [("7", 1, True), ("7", 0, False), ("6", 1, False)])
def test_only_the_report_of_this_start_blames_a_host(job, started, restart, blamed):
    reason = blame(job.checkpoints, job=started, restart=restart)
    result = job("begin_run; end_run 1", SLURM_RESTART_COUNT="1")
    assert (f"The run failed with status 1: {reason}" in result.stdout) == blamed
    assert ("Excluded from now on: node1." in result.stdout) == blamed and job.requeued()


@pytest.mark.parametrize("status", [1, 75])
def test_evidence_from_before_the_step_was_restarted_blames_nobody(job, status):
    """As --auto-resume of HyperPod does: the last step wrote no failure report."""
    Evidence(job.checkpoints).rank(0, "user_error")
    Evidence(job.checkpoints, start="20261126T120001Z-0123abcd")
    result = job(f"begin_run; end_run {status}")
    assert "ExcNodeList" not in job.checkout.calls() and job.requeued(), result.stdout + result.stderr
    assert ("The run was stopped" in result.stdout) == (status == 75)


def test_a_user_error_counts_whatever_the_clock_of_its_host_is(job):
    found = Evidence(job.checkpoints)
    found.times -= 3600
    found.rank(0, "user_error")
    assert job("begin_run; end_run 143").returncode == 2


@pytest.mark.parametrize(
    ("why", "launcher", "status", "requeued"),
    [
        ("device_error", 143, 1, True),
        ("device_error", 137, 1, True),
        ("device_error", 75, 1, True),
        ("user_error", 143, 2, False),
        ("user_error", 75, 2, False),
        ("signal", 75, 75, True),
    ],
)
def test_the_evidence_decides_what_a_signal_of_the_launcher_means(job, why, launcher, status, requeued):
    Evidence(job.checkpoints).rank(0, why)
    result = job(f"begin_run; end_run {launcher}")
    assert (result.returncode, job.requeued()) == (status, requeued), result.stdout + result.stderr


@pytest.mark.parametrize(("what", "failures"), [("true", 1), ("MPZERO_STOP=TERM", 0)])
def test_a_failure_in_the_evidence_is_no_stop_unless_one_was_requested(job, what, failures):
    """The launcher signals the other ranks, which take this for a stop before their first step."""
    blame(job.checkpoints)
    result = job(f"begin_run; {what}; end_run 75")
    assert job.requeued() and job.state()["failures"] == failures, result.stdout + result.stderr
    assert ("The run was stopped" in result.stdout) == (failures == 0)


@pytest.mark.parametrize(("state", "left_out"), [("down*", True), ("idle*", True), ("drained", False), ("idle", False)])
def test_a_host_without_evidence_is_left_out_only_where_slurm_knows_it_to_be_down(job, state, left_out):
    found = Evidence(job.checkpoints, hosts=2, ranks=1)
    found.rank(0, "communicator_error", error="a peer has gone")
    result = job(f'states="idle {state} idle idle"; begin_run; end_run 143')
    assert (exclusions(job) == ["scontrol update JobId=7 ExcNodeList=node1"]) == left_out, result.stdout + result.stderr
    path = job.checkpoints / "failure.json"
    assert job.requeued() and "node1" in json.loads(path.read_text())["reason"]
    # The next start judges as the end did, on other nodes too, and where the end could not write what it found.
    for nodes in ("node[0-1]", "node2,node3"):
        path.unlink()
        job(f'states="idle {state} idle idle"; SLURM_JOB_NODELIST={nodes}; begin_run', SLURM_RESTART_COUNT="1")
        assert json.loads(path.read_text())["hosts"] == (["node1"] if left_out else [])


@pytest.mark.parametrize(("status", "ends"), [(123, 1), (125, 2)])
def test_evidence_from_before_a_step_that_did_not_start_is_not_read(job, status, ends):
    blame(job.checkpoints, host=0)
    result = job(f"begin_run; MPZERO_NO_TASKS_ON=node1; end_run {status}")
    assert (result.returncode, job.requeued()) == (ends, status == 123), result.stdout + result.stderr
    assert exclusions(job) == (["scontrol update JobId=7 ExcNodeList=node1"] if status == 123 else [])


def test_a_user_error_is_not_followed_by_a_wait_for_evidence(job):
    assert job("begin_run; export MPZERO_RETRY_SECONDS=999; end_run 2").returncode == 2


def test_old_starts_are_removed_at_each_start(job):
    for number in range(22):
        Evidence(job.checkpoints, start=f"20261126T{number:06}Z-00000000")
    job("begin_run")
    assert len(list((job.checkpoints / "failures").iterdir())) == 20


def test_evidence_that_shows_late_is_judged_at_the_next_start(job):
    job("begin_run; end_run 143")
    blame(job.checkpoints)
    assert job("begin_run", SLURM_RESTART_COUNT="1").returncode == 0
    assert json.loads((job.checkpoints / "failure.json").read_text())["hosts"] == ["node1"]


def test_a_run_that_slurm_preempts_is_no_failure_and_blames_nobody(job):
    # Ranks that are ended one after another report each other.
    blame(job.checkpoints)
    result = job("preempted=2026-11-21T12:43:58; begin_run; end_run 1")
    assert job.requeued() and "ExcNodeList" not in job.checkout.calls(), result.stderr
    assert (job.state()["failures"], job.state()["last_run_failed"]) == (0, False)


def test_a_program_that_fails_after_the_requeue_does_not_ask_for_another(job):
    blame(job.checkpoints)
    with open(job.checkout.root / "scripts/requeue/return_to_queue.py", "a") as module:
        module.write("\n\ndef exclude(slurm, record, nodes):\n    raise KeyError(nodes)\n")
    result = job("begin_run; end_run 9")
    assert (result.returncode, job.checkout.calls().count("scontrol requeue")) == (1, 1)
    assert result.stderr.count("mpzero: warning") == 1 and "KeyError" in result.stderr, result.stderr


def test_a_program_that_fails_before_the_requeue_loses_no_job(job):
    with open(job.checkout.root / "scripts/requeue/slurm.py", "a") as module:
        module.write("\n\ndef fail(slurm):\n    raise KeyError(slurm)\n\n\nSlurm.requeue = fail\n")
    result = job("begin_run; end_run 9", SLURM_RESTART_COUNT="2")
    assert (result.returncode, job.checkout.calls().count("scontrol requeue")) == (9, 1)
    assert "KeyError" in result.stderr and "every start counts against MAX_RESTARTS=3" in result.stderr


def test_the_signals_that_come_with_a_requeue_do_not_end_what_follows_it(job):
    # Slurm sends them to all processes of the batch step as soon as the job is pending again.
    blame(job.checkpoints)
    job.replace(
        "scontrol",
        """if [[ $1 == requeue ]]; then
  pids=() pid=$$
  while [[ $pid != "$JOB_SHELL" ]]; do
    pid=$(sed 's/.*) . \\([0-9]*\\) .*/\\1/' "/proc/$pid/stat")
    pids+=("$pid")
    ((pid > 1)) || exit 1
  done
  for signal in CONT HUP USR1 TERM INT; do kill "-$signal" "${pids[@]}"; done
fi""",
    )
    result = job("catch_stops; begin_run; end_run 1")
    assert "Excluded from now on: node1." in result.stdout, result.stderr
    assert result.returncode == 1 and "warning" not in result.stderr


def test_a_log_that_is_full_loses_no_stop(job):
    script = """catch_stops
ends_at=$(date --date="+60 seconds" +%Y-%m-%dT%H:%M:%S)
exec >/dev/full
say "the log is full"
warn "the log is full" 2>/dev/full
stop_in_time 58
run_interruptibly sleep 40 || true
echo "stopped by ${MPZERO_STOP:-nothing}" >"$RECORD/stop"
"""
    result = job(script)
    assert (job.checkout.record / "stop").read_text() == "stopped by USR1\n", result.stderr


def test_a_stop_that_ended_ranks_while_slurm_ends_the_job_is_no_failure(job):
    # In the state COMPLETING the record of Slurm names no preemption, and the time limit is far away.
    result = job("begin_run; state=COMPLETING; end_run 143")
    assert "The run failed" not in result.stdout and job.state()["failures"] == 0, result.stdout


def test_a_log_that_is_full_loses_no_job(job):
    (job.checkout.root / "run.sh").write_text("begin_run; exec >/dev/full; end_run 1")
    result = job("source run.sh")
    assert result.returncode == 1 and job.requeued(), result.stderr


def test_a_run_fails_with_a_message_where_no_python_runs(job):
    python = job.checkout.root / ".venv/bin/python"
    reason = blame(job.checkpoints)
    python.write_text("#!/no/such/interpreter\n")
    # Any other Python will do.
    job.checkout.program(job.checkout.bin / "python3", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    result = job("begin_run; end_run 1")
    assert reason in result.stdout and "warning" not in result.stderr, result.stderr
    job.record().unlink()
    job.checkout.program(job.checkout.bin / "python3", "#!/bin/bash\nexit 127\n")
    result = job("end_run 1")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert "every start counts against MAX_RESTARTS=3" in result.stderr
    assert job.checkout.calls().count("scontrol requeue Incomplete 7\n") == 2


def test_a_task_of_a_job_array_is_asked_for_by_its_own_name(job):
    # Slurm's commands take the number of the array, which is that of one of its tasks, too, for all tasks.
    blame(job.checkpoints)
    result = job("begin_run; end_run 1", SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="3")
    assert "Excluded from now on: node1." in result.stdout, result.stderr
    calls = job.checkout.calls()
    assert "scontrol requeue Incomplete 7_3\n" in calls and "scontrol update JobId=7_3 ExcNodeList=node1\n" in calls
    assert "show job 7_3\n" in calls
    assert not re.search(r"(job|Incomplete|JobId=|jobs=) ?7\s", calls), calls
    assert job.state()["job"] == "7_3"
    again = job("begin_run; seconds_left", SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="3", SLURM_RESTART_COUNT="1")
    assert job.state()["failures"] == 1 and "squeue --noheader --jobs=7_3 --format=%e\n" in job.checkout.calls(), again
    other = job("SLURM_JOB_ID=8; begin_run", SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="4", SLURM_RESTART_COUNT="1")
    assert (job.state()["job"], job.state()["failures"]) == ("7_4", 0), other.stderr


def test_a_job_that_is_cancelled_while_it_asks_for_its_requeue_stays_cancelled(job):
    # Slurm then takes the command, and does nothing. The next record of the job shows it.
    job.replace(
        "scontrol",
        """if [[ $1 == requeue ]]; then called scontrol "$@"; exit; fi
[[ ! -e "$RECORD/calls" || $(<"$RECORD/calls") != *requeue* ]] || export state=COMPLETING""",
    )
    result = job("begin_run; end_run 1")
    assert "Slurm has already ended this job (scancel or the time limit); not requeuing the job." in result.stdout
    assert job.requeued() and "update" not in job.checkout.calls()


def test_a_program_that_failed_is_not_taken_for_a_missing_python(job):
    (job.checkout.root / "scripts/requeue/__main__.py").write_text("raise RuntimeError('a defect')\n")
    result = job("begin_run; end_run 1")
    assert result.returncode == 1 and job.requeued()
    assert "RuntimeError: a defect" in result.stderr
    assert result.stderr.count("MAX_RESTARTS=") == 2  # a warning for the start, one for the end


def test_a_checkpoint_folder_that_does_not_respond_does_not_keep_the_job(job):
    program = job.checkout.root / "scripts/requeue/__main__.py"
    set_alarm = "signal.alarm(slurm.FOLDER_SECONDS)"
    stuck = "slurm.FOLDER_SECONDS = 1\n    command.newest_checkpoint = lambda folder: signal.pause()\n    "
    program.write_text(program.read_text().replace(set_alarm, stuck + set_alarm, 1))
    assert job("end_run 1").returncode == 1
    assert job.requeued()


def test_a_python_that_does_not_start_does_not_keep_the_job(job):
    reason = blame(job.checkpoints)
    job.checkout.program(job.checkout.root / ".venv/bin/python", "#!/bin/bash\nexec sleep infinity\n")
    starts = f'#!/bin/bash\n[[ $1 != -c ]] || exit 0\nexec {sys.executable} "$@"\n'
    job.checkout.program(job.checkout.bin / "python3", starts)
    assert reason in job("MPZERO_PYTHON_SECONDS=2; end_run 1").stdout


def test_a_checkout_that_does_not_respond_does_not_keep_the_job(job):
    program = job.checkout.root / "scripts/requeue/__main__.py"
    program.write_text(program.read_text().replace("START_SECONDS = 60", "START_SECONDS = 1"))
    (program.parent / "table.py").write_text("import signal\nsignal.pause()\n")
    assert job("end_run 1").returncode == 1
    assert job.requeued()
