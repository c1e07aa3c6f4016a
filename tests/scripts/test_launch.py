"""How a job starts its ranks, and how long it lets them run, with stand-ins for Slurm."""

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.slurm import NO_ANSWER, RUNNING


def test_ranks_that_outlive_their_time_are_distinguished_from_those_that_a_signal_ended(job):
    command = """
    now=0
    seconds_since_boot() { echo "$now"; }
    run_interruptibly() { now=$((now + took)) SECONDS=$jumps MPZERO_STOP=${stop:-}; return 143; }
    launch() { local code=0; launch_ranks 5 mpzero doctor || code=$?; echo "status $code"; }
    MPZERO_SRUN=(--mpi=pmix) jumps=0 took=301; launch
    took=20 jumps=1000; launch
    took=301 stop=TERM; launch"""
    assert job(command).stdout.split() == ["status", "124", "status", "143", "status", "143"]


def test_seconds_are_counted_by_a_clock_that_nobody_sets(job):
    before, given, after = time.clock_gettime(time.CLOCK_BOOTTIME), job("SECONDS=5 seconds_since_boot").stdout, 0.0
    after = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert int(before) <= int(given) <= after


@pytest.mark.parametrize("refusals", [2, 9])
def test_a_step_that_slurm_does_not_create_is_tried_three_times(job, refusals):
    command = f"""
    srun() {{
      called srun "$@"
      [[ $(grep -c ^srun "$RECORD/calls") -le {refusals} ]] || return 0
      return "$SLURM_EXIT_ERROR"
    }}
    MPZERO_SRUN=(--mpi=pmix)
    begin_run
    launch_ranks 0 mpzero train || end_run $?
    echo trained"""
    result = job(command)
    assert job.checkout.calls().count("srun --mpi=pmix --kill-on-bad-exit=1 mpzero train\n") == 3
    assert ("trained" in result.stdout) == (refusals == 2)
    if refusals == 9:
        assert result.returncode == 2 and "The ranks have not run" in result.stderr
        assert not job.requeued() and job.state()["failures"] == 0


# srun's own words, as Slurm 22.05 writes them; it then ended with the highest status of the tasks that did run.
NO_TASKS = "srun: error: Task launch for StepId=7.0 failed on node node1: Unspecified error"


@pytest.mark.parametrize(("status", "train"), [(0, True), (143, True), (125, False)])
def test_a_node_on_which_no_task_starts_is_left_out(job, status, train):
    job.provide("srun", f'called srun "$@"; echo "{NO_TASKS}" >&2; echo "srun: error: more" >&2; exit {status}')
    command = f"""
    exec 2>>log
    echo "{NO_TASKS.replace("node1", "node0")}" >&2 # of an earlier start: the log is appended to
    MPZERO_SRUN=(--mpi=pmix)
    begin_run
    launch_ranks 0 mpzero x || {"end_run" if train else "refuse_hosts"} $?
    echo trained"""
    result = job(command)
    log = (job.checkout.root / "log").read_text()
    assert result.returncode == 1 and "trained" not in result.stdout, log
    assert "srun could not start tasks on node1" in result.stdout
    assert "Excluded from now on: node1." in result.stdout and job.requeued(), log
    assert (job.state()["refusals"], job.state()["failures"]) == (1, 0)
    assert job.checkout.calls().count("srun --mpi=pmix") == 1


def nodes_of_the_job(job, count: int) -> None:
    nodes = "".join(f"NodeName=node{number} X=1\\n" for number in range(count))
    job.replace("scontrol", f'[[ "$1 $2" != "show node" ]] || {{ printf "{nodes}"; exit; }}')


@pytest.mark.parametrize(
    ("count", "own", "named", "left_out"),
    [
        (2, "node0", (1,), "node1"),  # one of two
        (4, "node0", (1,), "node1"),
        (6, "node0", (1, 2), "node1,node2"),
        (4, "node0", (1, 2), ""),  # half of them: something that they share
        (4, "node0", (0, 1, 2, 3), ""),
        (3, "node0", (1, 2), "node0"),  # all but the one that srun runs on
        (32, "node7", tuple(n for n in range(32) if n != 7), "node7"),
    ],
)
def test_healthy_nodes_that_srun_does_not_reach_are_not_left_out(job, count, own, named, left_out):
    words = "; ".join(f'echo "{NO_TASKS.replace("node1:", f"node{number}:")}" >&2' for number in named)
    job.provide("srun", f"{words}; exit 9")
    job.provide("sinfo", "printf 'node%s idle (null) (null)\\n' {0..99}")
    nodes_of_the_job(job, count)
    command = "exec 2>>log; MPZERO_SRUN=(x); begin_run; launch_ranks 0 mpzero x || end_run $?"
    result = job(command, SLURMD_NODENAME=own)
    calls = job.checkout.calls()
    assert job.requeued() and (f"ExcNodeList={left_out}\n" in calls) == (left_out != ""), result.stdout
    assert ("StartTime=now+10minutes" in calls) == (left_out == "")
    assert ("ExcNodeList" in calls) == (left_out != "")


def test_a_shared_log_with_another_jobs_words_ends_no_run(job):
    job.provide("srun", f'echo "{NO_TASKS.replace("StepId=7.0", "StepId=77.0")}" >&2')
    result = job("exec 2>>log; MPZERO_SRUN=(x); begin_run; launch_ranks 0 mpzero x || end_run $?; echo trained")
    assert "trained" in result.stdout, result.stdout


def test_srun_is_asked_on_where_the_controller_does_not_answer(job):
    words = "srun: error: Unable to create step for job 7: Unable to contact slurm controller (connect failure)"
    job.provide("srun", f'called srun; (($(grep -c ^srun "$RECORD/calls") > 6)) || {{ echo "{words}" >&2; exit 125; }}')
    run = "exec 2>>log; MPZERO_SRUN=(x); begin_run; launch_ranks 0 mpzero x || end_run $?; echo trained"
    result = job(f"MPZERO_ASK_UNTIL=$(($(date +%s) + 3600)); {run}")
    assert "trained" in result.stdout, result.stdout
    (job.checkout.record / "calls").unlink()
    # When the job's time is nearly up it ends after three.
    result = job(f"MPZERO_ASK_UNTIL=1; {run}")
    assert result.returncode == 2 and job.checkout.calls().count("srun\n") == 3


def test_pmix_is_asked_for_again_where_munge_ended_the_command(job):
    job.provide("srun", '[[ -e $RECORD/twice ]] || { touch "$RECORD/twice"; kill -PIPE $$; }; echo pmix')
    assert job("has_pmix; echo $?").stdout == "0\n"


def test_what_a_rank_prints_names_no_other_jobs_node(job):
    job.provide("srun", f'echo "{NO_TASKS.replace("node1", "node8")}" >&2; exit 9')
    result = job("exec 2>>log; MPZERO_SRUN=(x); begin_run; launch_ranks 0 mpzero x || end_run $?")
    assert result.returncode == 1 and "ExcNodeList" not in job.checkout.calls(), result.stdout


# A controller that is away, and says so. How often it is asked in vain until the job's time is nearly up.
AWAY = 'called scontrol "$@"; echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1'


@pytest.mark.parametrize(
    ("ends", "asked"), [("+1 hour", True), ("Unknown", True), ("+20 seconds", False), ("-1 hour", False)]
)
def test_a_controller_that_is_away_is_asked_until_kill_wait_before_the_time_limit(job, ends, asked):
    job.provide("squeue", "echo N/A")
    job.replace(
        "scontrol",
        f"""[[ $2 != config ]] || {{ echo "KillWait                = 30 sec"; exit; }}
[[ ! -e "$RECORD/away" ]] || {{ echo >>"$RECORD/tries"; (($(wc -l <"$RECORD/tries") > 25)) || {{ {AWAY}; }}; }}""",
    )
    time = "Unknown" if ends == "Unknown" else f"$(date --date='{ends}' +%Y-%m-%dT%H:%M:%S)"
    result = job(
        f'remember_end "   StartTime=x EndTime={time} Deadline=N/A"; begin_run; touch "$RECORD/away"; end_run 1'
    )
    assert job.requeued() == (asked or ends.startswith(("+20", "-1"))), result.stdout + result.stderr
    tries = job.checkout.calls().count("scontrol show job 7\n")
    # Ten times in vain and then the requeue all the same, or 25 times in vain and then with an answer.
    assert (tries > 25) == asked, result.stdout + result.stderr
    assert ("The job keeps its nodes" in result.stderr) == asked


def test_bash_asks_a_controller_that_is_away_as_long(job):
    job.replace("scontrol", f'echo >>"$RECORD/tries"; (($(wc -l <"$RECORD/tries") > 25)) || {{ {AWAY}; }}')
    result = job("MPZERO_ASK_UNTIL=$(($(date +%s) + 3600)); show_job; ask_slurm scontrol ping")
    assert "JobState=RUNNING" in result.stdout and result.stderr.count("The job keeps its nodes") == 1
    assert job.checkout.calls().count("scontrol show job 7\n") == 26
    silent = job("MPZERO_ASK_UNTIL=1; show_job")
    assert "JobState" in silent.stdout
    (job.checkout.record / "tries").unlink()
    silent = job("MPZERO_ASK_UNTIL=1; show_job; echo done")
    assert silent.stdout == "done\n" and "keeps its nodes" not in silent.stderr


def test_bash_asks_again_what_munge_ended(job):
    job.replace("scontrol", '[[ -e $RECORD/twice ]] || { touch "$RECORD/twice"; kill -PIPE $$; }')
    result = job("show_job")
    assert "JobState=RUNNING" in result.stdout, result.stderr


def test_ask_slurm_keeps_answers_and_errors_apart(job):
    result = job('squeue() { echo "a warning" >&2; echo 4; }; echo "[$(ask_slurm squeue)]"')
    assert (result.stdout, result.stderr) == ("[4]\n", "a warning\n")
    result = job('scontrol() { echo "Invalid job id specified" >&2; called once; return 3; }; ask_slurm scontrol')
    assert (result.returncode, result.stderr, job.checkout.calls()) == (3, "Invalid job id specified\n", "once\n")


def test_bash_and_python_take_the_same_messages_for_a_silent_controller(job):
    assert job('echo "$MPZERO_NO_ANSWER"').stdout == f"{NO_ANSWER.pattern}\n"
    assert job('echo "$MPZERO_RUNNING"').stdout == f"{RUNNING.pattern}\n"
    # train.sbatch asks before it knows scripts/.
    assert f'local no_answer="^$|{NO_ANSWER.pattern}"\n' in (job.checkout.root / "sbatch/train.sbatch").read_text()


def in_seconds(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + seconds))


@pytest.mark.parametrize(
    ("end", "grace", "bounded"), [(240, "300", "120"), (7200, "300", "300"), (7200, "9", "9"), (240, "300.5", "300.5")]
)
def test_half_of_a_short_job_is_left_to_train_in(job, end, grace, bounded):
    by_flag = "MPZERO_EXTRA_FLAGS=(--grace_period 300.5); GRACE_PERIOD=; " if "." in grace else ""
    command = f"GRACE_PERIOD={grace}; {by_flag}CHECK_NODES=true; stop_in_time() {{ echo clock $1; }}; "
    result = job(
        f'{command} ends_at={in_seconds(end)}; choose_job_settings sbatch/train.sbatch; echo "grace $GRACE_PERIOD"'
    )
    words = result.stdout.split()
    said = float(words[-1])
    assert abs(said - float(bounded)) <= 1, result.stdout + result.stderr
    assert int(words[-3]) == int(said)


def test_a_run_is_stopped_in_time_whatever_the_signals_lead(job):
    command = f"""
    catch_stops
    ends_at={in_seconds(60)}
    stop_in_time 58
    run_interruptibly sleep 40 || true
    echo "stopped by ${{MPZERO_STOP:-nothing}}" """
    result = job(command)
    assert "s left, and GRACE_PERIOD is 58 s" in result.stdout, result.stderr
    assert "stopped by USR1" in result.stdout


def test_the_watcher_of_preemption_runs_on_the_node_as_slurm_calls_it(job):
    # A node's name in Slurm need not be its host name.
    job.provide("srun", 'called srun "$@"')
    job("run_with_watcher sleep 1", SLURMD_NODENAME="p5-7")
    assert "--nodelist=p5-7 " in job.checkout.calls()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("srun: fatal: Invalid SLURM_X specification", 2),
        ("srun: fatal: Could not establish a configuration source", 1),  # a controller that is away
        ("srun: error: Invalid --x specification", 1),
        ("a rank says srun: fatal: x", 1),
    ],
)
def test_what_srun_refuses_for_good_is_a_mistake_in_the_job(job, words, status):
    job.provide("srun", f'called srun; echo "{words}" >&2; exit 1')
    result = job('exec 2>>log; MPZERO_SRUN=(x); begin_run; launch_ranks 0 mpzero x || { echo "code $?"; }')
    assert result.stdout.split() == ["code", str(status)]
    assert job.checkout.calls().count("srun\n") == 1


@pytest.mark.parametrize("status", [0, 1])
def test_ranks_that_mpi_cannot_start_are_a_mistake_in_the_job(job, status):
    # A rank makes the file, and mpirun and srun have a status of their own.
    job.provide("srun", f': >"$MPZERO_START_FILE"; exit {status}')
    result = job('MPZERO_SRUN=(x); code=0; launch_ranks 0 mpzero x || code=$?; echo "code $code"')
    assert result.stdout.split() == ["code", str(2 * status)], result.stderr
    assert not list(job.checkpoints.glob("mpi_start*"))


def test_a_stop_while_mpi_starts_is_a_stop(job):
    result = job('expect_start 7; : >"$MPZERO_START_FILE"; MPZERO_STOP=TERM; status_of_start 143')
    assert result.stdout == "143\n", result.stderr


CANCELLED = "slurmstepd-node0: error: *** STEP 7.0 ON node0 CANCELLED AT 2026-11-26T15:41:24 ***"
KILLED = "srun: error: node0: tasks 0-1: Killed"


@pytest.mark.parametrize(
    ("lines", "started", "status"),
    [
        ([CANCELLED, KILLED], False, 2),
        ([CANCELLED, KILLED], True, 137),  # a rank of the run has aborted the others
        ([CANCELLED, KILLED, "srun: error: node1: task 2: Exited with exit code 127"], False, 137),
        ([CANCELLED.replace(" ***", " DUE TO NODE FAILURE ***"), KILLED], False, 137),
        ([KILLED], False, 137),
    ],
)
def test_ranks_that_mpi_has_killed_as_it_started_are_a_mistake_in_the_job(job, lines, started, status):
    says = "; ".join(f'echo "{line}" >&2' for line in lines)
    job.provide("srun", f"{': >$MPZERO_START_FILE.ok; ' if started else ''}{says}; exit 137")
    result = job('exec 2>>log; MPZERO_SRUN=(x); code=0; launch_ranks 0 mpzero x || code=$?; echo "code $code"')
    assert result.stdout.split() == ["code", str(status)]
    assert (job.checkout.root / "log").read_text().count("mpzero: error:") == (status == 2)
    assert not list(job.checkpoints.glob("mpi_start*"))


@pytest.mark.parametrize("said", ["node1: task 1: Killed", "Node failure on node1"])
def test_a_failure_without_evidence_is_described_by_srun(job, said):
    job.provide("srun", f': >$MPZERO_START_FILE.ok; echo "srun: error: {said}" >&2; exit 137')
    result = job("exec 2>>log; MPZERO_SRUN=(x); code=0; launch_ranks 0 mpzero x || code=$?; end_run $code")
    assert said in result.stdout and job.requeued(), result.stdout
