"""How a job starts its ranks, and how long it lets them run, with stand-ins for Slurm."""

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.slurm import NO_ANSWER


def test_ranks_that_outlive_their_time_are_told_from_those_that_a_signal_ended(job):
    command = """
    run_interruptibly() { SECONDS=$((SECONDS + took)) MPZERO_STOP=${stop:-}; return 143; }
    launch() { local code=0; launch_ranks 5 mpzero doctor || code=$?; echo "status $code"; }
    MPZERO_SRUN=(--mpi=pmix) took=301; launch
    took=20; launch
    took=301 stop=TERM; launch"""
    assert job(command).stdout.split() == ["status", "124", "status", "143", "status", "143"]


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
    assert job.checkout.calls().count("srun --mpi=pmix mpzero train\n") == 3
    assert ("trained" in result.stdout) == (refusals == 2)
    if refusals == 9:
        assert result.returncode == 2 and "no rank has run" in result.stderr
        assert not job.requeued() and job.state()["failures"] == 0


def test_ask_slurm_keeps_answers_and_errors_apart(job):
    result = job('squeue() { echo "a warning" >&2; echo 4; }; echo "[$(ask_slurm squeue)]"')
    assert (result.stdout, result.stderr) == ("[4]\n", "a warning\n")
    result = job('scontrol() { echo "Invalid job id specified" >&2; called once; return 3; }; ask_slurm scontrol')
    assert (result.returncode, result.stderr, job.checkout.calls()) == (3, "Invalid job id specified\n", "once\n")


def test_bash_and_python_take_the_same_messages_for_a_silent_controller(job):
    assert job('echo "$MPZERO_NO_ANSWER"').stdout == f"{NO_ANSWER.pattern}\n"


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
    assert "s of the job's time are left, and GRACE_PERIOD is 58 s" in result.stdout, result.stderr
    assert "stopped by USR1" in result.stdout


def test_the_watcher_of_preemption_runs_on_the_node_as_slurm_calls_it(job):
    # A node's name in Slurm need not be its host name.
    job.provide("srun", 'called srun "$@"')
    job("run_beside_watcher sleep 1", SLURMD_NODENAME="p5-7")
    assert "--nodelist=p5-7 " in job.checkout.calls()
