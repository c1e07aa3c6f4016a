"""scripts/stops.sh: a stop that is wanted reaches what the job runs, however early it comes."""

import os
import signal
import sys

import pytest

# The signal arrives between the fork of the child and the next command of the job's shell: the DEBUG trap sends it.
AT_THE_FORK = """
catch_stops
set -T
trap '[[ $BASH_COMMAND != "MPZERO_CHILD=\\$!" ]] || kill -USR1 $$' DEBUG
"""


def test_none_of_many_signals_right_after_the_start_of_a_child_is_lost(job):
    result = job(
        f"""{AT_THE_FORK}
        for ((i = 0; i < 50; ++i)); do
          MPZERO_STOP=""
          code=0
          run_interruptibly sleep 3600 || code=$?
          echo "ended $code ${{MPZERO_STOP:-lost}}"
        done"""
    )
    assert result.stdout.splitlines() == ["ended 138 USR1"] * 50, result.stderr


def test_a_child_that_ignores_the_first_signals_hears_of_the_stop_later(job):
    # As srun and mpirun do before they have created the ranks.
    result = job(
        """
        catch_stops
        # bash may fail to parse an expansion in a trap's text that a second signal interrupts, but not a function.
        hear() { heard=$((heard + 1)); }
        child() {
          trap hear USR1
          local heard=0
          kill -USR1 "$JOB_SHELL"
          until ((heard == 4)); do sleep 0.01; done
          exit 75
        }
        code=0
        run_interruptibly child || code=$?
        echo "ended $code" """
    )
    assert result.stdout == "ended 75\n", result.stderr


def test_nothing_is_started_once_a_stop_is_wanted(job):
    result = job(
        """
        catch_stops
        kill -USR1 $$
        code=0
        run_interruptibly touch "$RECORD/started" || code=$?
        echo "ended $code" """
    )
    assert result.stdout == "ended 138\n", result.stderr
    assert not (job.checkout.record / "started").exists()


@pytest.mark.parametrize("end", ["exit 75", "kill -KILL $BASHPID"])
def test_the_status_of_a_child_that_ends_as_a_stop_comes_is_not_lost(job, end):
    # Both at once, in no order: a plain `wait` loses a third of such statuses.
    result = job(
        f"""
        catch_stops
        for ((i = 0; i < 30; ++i)); do
          MPZERO_STOP=""
          code=0
          child() {{ trap '' USR1; echo >&"$ready"; read -r -t 0.01 -u "$gate" || true; {end}; }}
          exec {{gate}}<> <(:) {{ready}}<> <(:)
          # A child that has not set its trap yet would end with the signal.
          (read -r -u "$ready"; read -r -t 0.01 -u "$gate" || kill -USR1 "$JOB_SHELL") &
          signaller=$!
          run_interruptibly child || code=$?
          wait_for_child "$signaller" || true
          exec {{gate}}>&- {{ready}}>&-
          echo "ended $code"
        done"""
    )
    assert set(result.stdout.splitlines()) == {f"ended {75 if 'exit' in end else 137}"}, result.stdout + result.stderr
    assert len(result.stdout.splitlines()) == 30


def test_a_trap_that_takes_long_does_not_end_the_shell_that_waits(job):
    # bash 5.2 ends with SIGABRT where a trap of `read -t` runs a command substitution as its time is over.
    result = job(
        """
        trap 'text=$(sleep 0.5 && echo said); echo "$text"' USR1
        (sleep 0.3; kill -USR1 $JOB_SHELL; sleep 1; exit 75) &
        code=0
        wait_for_child $! || code=$?
        echo "ended $code" """
    )
    assert result.stdout == "said\nended 75\n", result.stderr


# srun with a step that does nothing: it ends on SIGTERM, also where it was started with that signal ignored.
STEP = "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL); signal.pause()"


def test_a_watcher_of_preemption_that_has_just_been_forked_is_ended(job):
    # Ranks that end immediately leave it no time to set its trap.
    job.provide("srun", f"called srun; exec {sys.executable} -c '{STEP}'")
    result = job(
        """
        catch_stops
        for ((i = 0; i < 20; ++i)); do run_with_watcher true; done
        echo "ended" """
    )
    assert result.stdout == "ended\n", result.stderr


# The waits of a job before its ranks run: a stand-in for the program that it waits for sends the signal, once.
WAITS = {
    "the job's record": ("scontrol", "show job"),
    "the partition": ("scontrol", "show partition"),
    "the GPUs of the nodes": ("sinfo", ""),
    "the time that is left": ("squeue", ""),
    "the nodes' CUDA": ("srun", "--mpi=none"),
    "the PMIx of Slurm": ("srun", "--mpi=list"),
    "the data": ("python", "app/prepare_data.py"),
}


@pytest.mark.parametrize("signal", ["USR1", "TERM"])
@pytest.mark.parametrize("wait", WAITS)
def test_a_stop_that_comes_before_the_ranks_is_not_lost(job, wait, signal):
    checkout = job.checkout
    (checkout.root / "train.sbatch").symlink_to("sbatch/train.sbatch")
    program, words = WAITS[wait]
    send = f'''if [[ "$*" == *"{words}"* ]] && mkdir "$RECORD/sent" 2>/dev/null; then kill -{signal} "$JOB_SHELL"; fi'''
    job.provide("srun", 'called srun "$@"; [[ $1 != --mpi=list ]] || echo pmix')
    if program == "python":
        checkout.program(checkout.root / ".venv/bin/python", f'#!/bin/bash\n{send}\nexec {sys.executable} "$@"\n')
    else:
        job.replace(program, send)
    (checkout.root / "cuda-12.9").mkdir()
    data = {} if wait == "the data" else {"TRAIN_DATA": "/dev/null"}
    result = job(
        "exec bash ./train.sbatch",
        SLURM_JOB_NUM_NODES="2", SLURM_JOB_CPUS_PER_NODE="2(x2)", CUDA_VERSION="12.9", CUDA_PARENT=str(checkout.root),
        **data,
    )  # fmt: skip
    assert (checkout.record / "sent").exists(), result.stdout + result.stderr
    assert "build/bin/mpzero" not in checkout.calls(), result.stdout + result.stderr
    assert result.returncode == 138, result.stdout + result.stderr
    assert "The run was stopped" in result.stdout and job.requeued(), result.stdout + result.stderr


def test_a_clock_that_is_killed_leaves_nothing_that_holds_the_output(checkout):
    """Its sleep goes on: whoever reads the script's output would wait for that."""
    clock = "seconds_left() { echo 1000; }; stop_in_time 10; "
    clock += 'until nap=$(pgrep -P "$MPZERO_CLOCK" sleep); do :; done; kill -KILL "$MPZERO_CLOCK"; echo "$nap"'
    said = checkout.shell(clock).stdout
    os.kill(int(said), signal.SIGKILL)


@pytest.mark.parametrize("arrives", ["during the run", "before the settings"])
def test_a_warning_that_slurm_sends_at_once_does_not_stop_a_short_job(job, arrives):
    # Slurm's --signal=B:USR1@300 in a job of two minutes. The clock's signal, at GRACE_PERIOD, stops it.
    early = 'kill -USR1 "$JOB_SHELL"'
    result = job(
        f"""
        catch_stops
        seconds_left() {{ echo 120; }}
        GRACE_PERIOD=300
        {early if arrives == "before the settings" else ""}
        bound_grace "$MPZERO_ROOT/sbatch/train.sbatch"
        code=0
        ({early if arrives == "during the run" else ":"}; sleep 0.3; echo running) &
        run_interruptibly sleep 1 || code=$?
        echo "status $code, signal ${{MPZERO_STOP:-none}}"
        MPZERO_EARLY_WARNING=USR1 MPZERO_EARLY_UNTIL=$((EPOCHSECONDS + 100))
        stop_shell
        echo "grace $GRACE_PERIOD, $MPZERO_STOP" """
    )
    assert result.stdout.splitlines()[1:] == ["running", "status 0, signal none", "grace 60, TERM"], (
        result.stdout + result.stderr
    )


@pytest.mark.parametrize("name", ["USR2", "HUP", "INT", "QUIT", "ALRM", "TERM"])
def test_any_signal_of_a_stop_reaches_the_child_as_sigusr1(job, name):
    # Also after a follower, which takes SIGUSR2 and SIGALRM for its own, has been started.
    result = job(
        f"""
        catch_stops
        follow_run() {{ :; }}
        SINK=tensorboard start_follower
        code=0
        (sleep 0.1; kill -{name} "$JOB_SHELL") &
        run_interruptibly sleep 3600 || code=$?
        echo "ended $code $MPZERO_STOP" """
    )
    assert result.stdout == f"ended 138 {name}\n", result.stderr


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ("B:USR1@300", ""), ("USR2@40", ""), ("SIGTERM", ""), ("hup@60", ""), ("12@60", ""), ("B:QUIT@60", ""),
        ("RB:usr1@9", ""), ("", ""), ("KILL@40", "KILL"), ("B:KILL@40", "KILL"), ("9", "9"), ("B:STOP@9", "STOP"),
        ("QUIT@60", "QUIT"), ("R:CONT", "CONT"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["variable", "file"])
def test_a_signal_on_which_nothing_is_saved_is_refused(job, given, refused, by):
    if by == "file":
        text = "" if not given else f"#SBATCH --signal={given}\n"
        (job.checkout.root / "sbatch/train.sbatch").write_text(text)
    variables = {"SBATCH_SIGNAL": given} if by == "variable" else {}
    result = job("require_stop_signal sbatch/train.sbatch; echo goes on", **variables)
    assert (result.returncode, result.stdout) == ((2, "") if refused else (0, "goes on\n")), result.stderr
    assert result.stderr.count("\n") == bool(refused) and refused in result.stderr
