"""What the scripts of a Slurm job decide when its run ends (requeue, stops, launch), with stand-ins for Slurm."""

import json
import os
import subprocess
import sys
import time

import pytest

NO_ANSWER = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


def restarts(job) -> dict[str, str]:
    words = (job.checkpoints / "restarts.txt").read_text().split()
    return dict(word.split("=", 1) for word in words)


BEGIN = """begin_run
step=$(sed 's/.* step=\\([0-9]*\\) .*/\\1/' "$CHECKPOINT_DIR/restarts.txt")
echo "flags ${MPZERO_EXTRA_FLAGS[*]}, step $step"
"""


@pytest.mark.parametrize("flag", ["--resume_from_checkpoint none", "--resume_from_checkpoint=/fsx/other/tiny-90steps"])
@pytest.mark.parametrize("end", ["save 2; end_run 75", "save 2"], ids=["stopped", "ended by Slurm"])
def test_a_requeued_job_goes_on_from_its_own_checkpoint(job, flag, end):
    # What another job has left here is not this one's.
    (job.checkpoints / "latest").write_text("qwen3_tiny-500steps\n")
    flags = f"MPZERO_EXTRA_FLAGS=(--seed 3 {flag} --bf16); "
    base = "0" if flag.endswith("none") else "90"
    step = "95" if base == "90" else "2"
    first = job(flags + BEGIN + end.replace("save 2", f"save {step}"))
    assert f"flags --seed 3 {flag} --bf16, step {base}" in first.stdout, first.stderr
    second = job(flags + BEGIN, SLURM_RESTART_COUNT="1")
    assert f"flags --seed 3 --bf16, step {step}" in second.stdout, second.stderr
    assert second.stdout.count("--resume_from_checkpoint") == 1
    assert restarts(job)["barren"] == "0"
    # The record of an open start that did not save more says so, and the flag stays dropped.
    third = job(flags + BEGIN, SLURM_RESTART_COUNT="2")
    assert f"flags --seed 3 --bf16, step {step}" in third.stdout, third.stderr
    assert restarts(job)["barren"] == "1"


@pytest.mark.parametrize(
    "flag",
    [
        "--overwrite",
        "--overwrite true",
        "--overwrite=true",
        "--overwrite=True",
        "--overwrite=yes",
        "--resume_from_checkpoint none --overwrite",
        "--overwrite --resume_from_checkpoint=/fsx/other/tiny-1steps",
    ],
)
def test_a_requeued_job_does_not_move_its_own_run_aside(job, flag):
    (job.checkpoints / "latest").write_text("qwen3_tiny-500steps\n")
    flags = f"MPZERO_EXTRA_FLAGS=(--seed 3 {flag} --bf16); "
    base = "1" if "other" in flag else "0"
    # The first start moves the 500 steps of another run aside and ends before it has saved; the second saves fewer.
    first = job(flags + BEGIN + 'rm "$CHECKPOINT_DIR/latest"; end_run 75')
    assert f"flags --seed 3 {flag} --bf16, step {base}" in first.stdout, first.stderr
    second = job(flags + BEGIN + "save 2; end_run 75", SLURM_RESTART_COUNT="1")
    assert f"flags --seed 3 {flag} --bf16, step {base}" in second.stdout, second.stderr
    assert restarts(job)["barren"] == "0"
    third = job(flags + BEGIN, SLURM_RESTART_COUNT="2")
    assert "flags --seed 3 --bf16, step 2" in third.stdout, third.stderr
    assert "--overwrite, which is left out" in third.stdout
    # A new job of the same command begins anew.
    new = job(flags + "SLURM_JOB_ID=8; " + BEGIN)
    assert f"flags --seed 3 {flag} --bf16, step {base}" in new.stdout, new.stderr


@pytest.mark.parametrize(
    "flag", ["--overwrite false", "--overwrite=false", "--overwrite False", "--overwrite no", "--overwrite=0"]
)
def test_a_switch_that_is_off_is_none(job, flag):
    (job.checkpoints / "latest").write_text("qwen3_tiny-500steps\n")
    result = job(f"MPZERO_EXTRA_FLAGS=({flag} --bf16); " + BEGIN)
    assert f"flags {flag} --bf16, step 500" in result.stdout, result.stderr


def test_a_job_that_has_saved_nothing_keeps_where_it_begins(job):
    (job.checkpoints / "latest").write_text("qwen3_tiny-500steps\n")
    flags = "MPZERO_EXTRA_FLAGS=(--resume_from_checkpoint none); "
    job(flags + BEGIN + "end_run 75")
    again = job(flags + BEGIN, SLURM_RESTART_COUNT="1")
    assert "flags --resume_from_checkpoint none, step 0" in again.stdout, again.stderr
    assert restarts(job)["barren"] == "1"
    # So does the first start of a new job in the folder of one that has.
    job(flags + BEGIN + "save 4; end_run 75")
    new = job(flags + "SLURM_JOB_ID=8; " + BEGIN)
    assert "flags --resume_from_checkpoint none, step 0" in new.stdout, new.stderr


NOT_KNOWN = "Whether this job has saved since it began with --resume_from_checkpoint or --overwrite is not known"
# What becomes of the job's restarts.txt between its starts.
LOSSES = {
    "missing": lambda path: path.unlink(),
    "damaged": lambda path: path.write_text("job=7 failures=1\n"),
    "another job's": lambda path: path.write_text(path.read_text().replace("job=7", "job=6")),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "endless": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "broken link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("flag", ["--overwrite", "--resume_from_checkpoint none"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_requeued_job_that_does_not_know_whether_it_has_saved_undoes_nothing(job, flag, loss):
    flags = f"MPZERO_EXTRA_FLAGS=({flag}); "
    begin = 'begin_run; echo "flags ${MPZERO_EXTRA_FLAGS[*]}"; '
    assert job(flags + begin + "save 4").returncode == 0
    LOSSES[loss](job.checkpoints / "restarts.txt")
    # A requeue by hand, after the job has ended for this reason, knows no more.
    for restart in ("1", "2"):
        again = job(flags + begin, SLURM_RESTART_COUNT=restart)
        assert again.returncode == 1 and NOT_KNOWN in again.stderr, again.stdout + again.stderr
        assert "flags" not in again.stdout and not job.requeued()
    # A first start begins whatever lies there; so does a job without these flags.
    first = job("SLURM_JOB_ID=8; " + flags + begin + "rm -rf checkpoints/restarts.txt")
    assert f"flags {flag}\n" in first.stdout, first.stderr
    assert "flags --bf16" in job("MPZERO_EXTRA_FLAGS=(--bf16); " + begin, SLURM_RESTART_COUNT="3").stdout
    # Where there is no checkpoint at all, there is nothing to undo.
    (job.checkpoints / "latest").unlink()
    assert f"flags {flag}\n" in job(flags + "SLURM_JOB_ID=9; " + begin, SLURM_RESTART_COUNT="1").stdout


@pytest.mark.parametrize("unwritten", ["first", "second"])
def test_a_start_that_could_not_be_noted_is_not_known_later(job, unwritten):
    flags = "MPZERO_EXTRA_FLAGS=(--overwrite); "
    if unwritten == "second":
        assert job(flags + "begin_run; end_run 75").returncode == 75
    # As on a file system that is full.
    full = "ulimit -S -f 0; begin_run; ulimit -S -f unlimited; save 4"
    noted = job(flags + full, SLURM_RESTART_COUNT="0" if unwritten == "first" else "1")
    assert noted.returncode == 0 and "restarts.txt cannot be written" in noted.stderr, noted.stderr
    again = job(flags + "begin_run", SLURM_RESTART_COUNT="2")
    assert again.returncode == 1 and NOT_KNOWN in again.stderr, again.stdout + again.stderr


def test_both_who_decide_say_alike_that_it_is_not_known(job):
    job("save 4")
    begin = "MPZERO_EXTRA_FLAGS=(--overwrite); begin_run"
    known = job(begin, SLURM_RESTART_COUNT="1").stderr.splitlines()[-1]
    without_python = job("find_python() { return 1; }; " + begin, SLURM_RESTART_COUNT="1").stderr.splitlines()[-1]
    assert known == without_python and NOT_KNOWN in known
    assert "without these flags goes on from the last checkpoint, and with them begins so again" in known


def hung(host: str) -> str:
    finding = {"check": "gpus", "status": "failure", "message": "the GPU driver\nhas not answered", "blame": "host"}
    return json.dumps({"hosts": [{"host": host, "status": "failure", "findings": [finding]}]})


def test_hosts_on_which_the_doctor_hangs_are_left_out(job):
    for host in ("ip-10-0-0-1.ec2.internal", "ip-10-0-0-9"):
        (job.checkpoints / f"doctor.json.{host}.hung").write_text(hung(host))
    (job.checkpoints / "doctor.json.broken.hung").write_text("{")
    result = job("begin_run; refuse_hosts 1")
    assert result.returncode == 1
    assert "ip-10-0-0-1.ec2.internal is refused: the GPU driver has not answered" in result.stderr
    assert "Left out from now on: node1." in result.stdout, result.stderr
    assert job.requeued()
    assert (restarts(job)["refusals"], restarts(job)["failures"]) == ("1", "0")


def test_a_doctor_that_wrote_its_report_is_believed_and_old_reports_are_removed(job):
    (job.checkpoints / "doctor.json").write_text(hung("node0"))
    (job.checkpoints / "doctor.json.node1.hung").write_text(hung("node1"))
    result = job("begin_run; refuse_hosts 1")
    assert "node0 is refused" in result.stderr and "node1" not in result.stderr
    assert job("forget_doctor").returncode == 0
    assert sorted(path.name for path in job.checkpoints.iterdir()) == ["restarts.txt"]
    assert job("forget_doctor").returncode == 0


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "mpzero doctor ended, and"), (124, "mpzero doctor was still running after 5 minutes, and")],
)
def test_a_doctor_that_left_no_report_is_a_failure_that_says_so(job, status, words):
    result = job(f"begin_run; refuse_hosts {status}")
    assert f"{words} no report came from any of node[0-1]" in result.stdout, result.stderr
    assert job.requeued() and restarts(job)["failures"] == "1"


@pytest.mark.parametrize(
    ("status", "record", "failures"),
    [
        (75, "true", "0"),
        (1, "MPZERO_STOP=USR1", "0"),
        (143, "MPZERO_STOP=TERM", "0"),
        (143, "true", "1"),
        (138, "true", "1"),
        (143, "preempted=2026-11-21T12:43:58", "0"),
        (1, "preempted=2026-11-21T12:43:58", "1"),
        (138, 'ends_at=$(date --date="+340 seconds" +%Y-%m-%dT%H:%M:%S)', "0"),
        (138, 'ends_at=$(date --date="+900 seconds" +%Y-%m-%dT%H:%M:%S)', "1"),
    ],
)
def test_a_signal_is_a_stop_only_where_someone_asked_for_one(job, status, record, failures):
    result = job(f"begin_run; {record}; end_run {status}")
    assert result.returncode == status
    assert ("The run was stopped" in result.stdout) == (failures == "0"), result.stdout
    assert job.requeued() and restarts(job)["failures"] == failures


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
    assert ("Slurm puts it back into the queue" in result.stdout) != asked


def test_a_job_that_slurm_is_ending_is_left_to_slurm(job):
    result = job("begin_run; state=COMPLETING; end_run 143")
    assert "Slurm is ending this job" in result.stdout
    assert not job.requeued()


def test_ranks_that_outlive_their_time_are_told_from_those_that_a_signal_ended(job):
    command = """
    run_interruptibly() { SECONDS=$((SECONDS + took)); return 143; }
    launch() { local code=0; launch_ranks 5 mpzero doctor || code=$?; echo "status $code"; }
    MPZERO_SRUN=(--mpi=pmix) took=301; launch
    took=20; launch
    took=301 MPZERO_STOP=TERM; launch"""
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
        assert not job.requeued() and restarts(job)["failures"] == "0"


def test_a_controller_that_is_silent_for_a_while_does_not_lose_the_job(job):
    command = f"""
    eval "answering_$(declare -f scontrol)"
    scontrol() {{
      echo try >>"$RECORD/tries"
      (($(wc -l <"$RECORD/tries") % 4 == 0)) || {{ echo "{NO_ANSWER}" >&2; return 1; }}
      answering_scontrol "$@"
    }}
    begin_run; end_run 1"""
    result = job(command)
    assert job.requeued() and "ending this job" not in result.stdout, result.stdout + result.stderr


def test_a_job_of_unknown_state_is_requeued_all_the_same(job):
    command = f"""
    scontrol() {{
      called scontrol "$@"
      [[ $1 == requeue ]] || {{ echo "{NO_ANSWER}" >&2; return 1; }}
    }}
    begin_run; end_run 1"""
    result = job(command)
    assert job.requeued() and "ending this job" not in result.stdout, result.stdout + result.stderr
    # Asked ten times for its state.
    assert job.checkout.calls().count("scontrol show job 7\n") == 10


@pytest.mark.parametrize(
    ("first", "second", "calls"),
    [
        ("Unexpected message received for job 7", "Job is pending execution for job 7", 2),
        ("Job requeue is disabled", "", 1),
    ],
)
def test_what_slurm_answers_to_a_requeue(job, first, second, calls):
    command = f"""
    eval "answering_$(declare -f scontrol)"
    scontrol() {{
      answering_scontrol "$@"
      [[ $1 == requeue ]] || return 0
      if (($(grep -c requeue "$RECORD/calls") == 1)); then echo "{first}" >&2; else echo "{second}" >&2; fi
      return 1
    }}
    begin_run; requeue 1 "Because." node1"""
    result = job(command)
    assert job.checkout.calls().count("scontrol requeue 7\n") == calls
    assert ("Slurm did not requeue the job (Job requeue is disabled)" in result.stderr) == (calls == 1)
    assert ("Left out from now on: node1." in result.stdout) == (calls == 2), result.stdout + result.stderr


def test_ask_slurm_keeps_answers_and_errors_apart(job):
    result = job('squeue() { echo "a warning" >&2; echo 4; }; echo "[$(ask_slurm squeue)]"')
    assert (result.stdout, result.stderr) == ("[4]\n", "a warning\n")
    result = job('scontrol() { echo "Invalid job id specified" >&2; called once; return 3; }; ask_slurm scontrol')
    assert (result.returncode, result.stderr, job.checkout.calls()) == (3, "Invalid job id specified\n", "once\n")


def test_hosts_are_found_by_name_where_slurm_does_not_answer(job):
    command = f"""
    scontrol() {{
      [[ $2 == hostnames ]] || {{ echo "{NO_ANSWER}" >&2; return 1; }}
      printf 'node0\\nnode1\\n'
    }}
    nodes_of_hosts node1.ec2.internal"""
    result = job(command)
    assert result.stdout == "node1\n", result.stderr


def test_a_run_fails_with_a_word_where_no_python_runs(job):
    python = job.checkout.root / ".venv/bin/python"
    (job.checkpoints / "failure.json").write_text(
        json.dumps({"job": "7", "restart": 0, "hosts": ["node1"], "reason": "rank 2 did not answer"})
    )
    python.write_text("#!/no/such/interpreter\n")
    # Any other Python will do.
    job.checkout.program(job.checkout.bin / "python3", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    result = job("begin_run; end_run 1")
    assert "rank 2 did not answer" in result.stdout and result.stderr == "", result.stderr
    (job.checkpoints / "restarts.txt").unlink()
    job.checkout.program(job.checkout.bin / "python3", "#!/bin/bash\nexit 127\n")
    result = job("begin_run; end_run 1")
    assert result.returncode == 1 and "The run failed with status 1\n" in result.stdout
    assert result.stderr.count("\n") == 1 and "no reason is known" in result.stderr
    assert job.checkout.calls().count("scontrol requeue 7\n") == 2


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


@pytest.mark.parametrize(
    ("answers_from", "command", "status", "sentence"),
    [
        (3, "{root}/sbatch/train.sbatch", 2, "CUDA_VERSION=99.9"),
        (3, "(null)", 2, "CUDA_VERSION=99.9"),
        (99, "{root}/sbatch/train.sbatch", 1, 'Slurm does not answer "scontrol show job 7"'),
        (1, "/no/such/file", 2, "CUDA_VERSION=99.9"),
    ],
)
def test_a_job_finds_its_checkout(job, answers_from, command, status, sentence):
    checkout = job.checkout
    (checkout.root / "train.sbatch").symlink_to("sbatch/train.sbatch")
    record = f"   Command={command.format(root=checkout.root)} NumNodes=1"
    checkout.program(
        checkout.bin / "scontrol",
        f"""#!/bin/bash
echo "scontrol $*" >>"$RECORD/calls"
(($(wc -l <"$RECORD/calls") >= {answers_from})) || {{ echo "{NO_ANSWER}" >&2; exit 1; }}
echo "{record}"
""",
    )
    # A toolkit that is missing ends the job as soon as it has found scripts/.
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_SUBMIT_DIR": str(checkout.root)}
    result = subprocess.run(
        ["bash", str(checkout.root / "sbatch/train.sbatch")],
        cwd=checkout.home,
        env=checkout.environment({**variables, "CUDA_VERSION": "99.9", "MPZERO_RETRY_SECONDS": "0"}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == status, result.stderr
    assert sentence in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert checkout.calls().count("show job") == min(answers_from, 10)


def test_a_job_whose_file_nobody_knows_says_so(job):
    checkout = job.checkout
    checkout.program(checkout.bin / "scontrol", "#!/bin/bash\necho '   Command=(null)'\n")
    result = subprocess.run(
        ["bash", str(checkout.root / "sbatch/train.sbatch")],
        cwd=checkout.home,
        env=checkout.environment({"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(checkout.home)}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert f"{checkout.home} has no train.sbatch" in result.stderr
