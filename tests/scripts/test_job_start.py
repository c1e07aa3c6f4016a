"""Where a start of a Slurm job begins: as its flags say, or from the job's own last checkpoint."""

import json
import os

import pytest
from evidence import Evidence, blame

BEGIN = 'begin_run; echo "flags ${MPZERO_EXTRA_FLAGS[*]}"; '


@pytest.mark.parametrize("flag", ["--resume_from_checkpoint none", "--resume_from_checkpoint=/fsx/other/tiny-90steps"])
@pytest.mark.parametrize("end", ["save 2; end_run 75", "save 2"], ids=["stopped", "ended by Slurm"])
def test_a_requeued_job_resumes_from_its_own_checkpoint(job, flag, end):
    # What another job has left here is not this one's.
    (job.checkpoints / "latest").write_text("qwen3_tiny-500steps\n")
    flags = f"MPZERO_EXTRA_FLAGS=(--seed 3 {flag} --bf16); "
    base = 0 if flag.endswith("none") else 90
    step = 95 if base == 90 else 2
    first = job(flags + BEGIN + end.replace("save 2", f"save {step}"))
    assert (f"flags --seed 3 {flag} --bf16\n" in first.stdout, job.state()["start_step"]) == (True, base), first.stderr
    second = job(flags + BEGIN, SLURM_RESTART_COUNT="1")
    assert ("flags --seed 3 --bf16\n" in second.stdout, job.state()["start_step"]) == (True, step), second.stderr
    assert second.stdout.count("--resume_from_checkpoint") == 1
    assert job.state()["unsaved_starts"] == 0
    # The record of an open start that did not save more says so, and the flag stays dropped.
    third = job(flags + BEGIN, SLURM_RESTART_COUNT="2")
    assert ("flags --seed 3 --bf16\n" in third.stdout, job.state()["start_step"]) == (True, step), third.stderr
    assert job.state()["unsaved_starts"] == 1


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
    base = 1 if "other" in flag else 0
    # The first start moves the 500 steps of another run aside and ends before it has saved; the second saves fewer.
    first = job(flags + BEGIN + 'rm "$CHECKPOINT_DIR/latest"; end_run 75')
    assert (f"flags --seed 3 {flag} --bf16\n" in first.stdout, job.state()["start_step"]) == (True, base), first.stderr
    second = job(flags + BEGIN + "save 2; end_run 75", SLURM_RESTART_COUNT="1")
    assert (f"flags --seed 3 {flag} --bf16\n" in second.stdout, job.state()["start_step"]) == (True, base), (
        second.stderr
    )
    assert job.state()["unsaved_starts"] == 0
    third = job(flags + BEGIN, SLURM_RESTART_COUNT="2")
    assert ("flags --seed 3 --bf16\n" in third.stdout, job.state()["start_step"]) == (True, 2), third.stderr
    assert "--overwrite is ignored" in third.stdout
    # A new job of the same command begins anew.
    new = job(flags + "SLURM_JOB_ID=8; " + BEGIN)
    assert (f"flags --seed 3 {flag} --bf16\n" in new.stdout, job.state()["start_step"]) == (True, base), new.stderr


@pytest.mark.parametrize(
    "flag", ["--overwrite false", "--overwrite=false", "--overwrite False", "--overwrite no", "--overwrite=0"]
)
def test_a_switch_that_is_off_is_none(job, flag):
    (job.checkpoints / "latest").write_text("qwen3_tiny-500steps\n")
    result = job(f"MPZERO_EXTRA_FLAGS=({flag} --bf16); " + BEGIN)
    assert (f"flags {flag} --bf16\n" in result.stdout, job.state()["start_step"]) == (True, 500), result.stderr


def test_a_job_that_has_saved_nothing_keeps_where_it_begins(job):
    (job.checkpoints / "latest").write_text("qwen3_tiny-500steps\n")
    flags = "MPZERO_EXTRA_FLAGS=(--resume_from_checkpoint none); "
    job(flags + BEGIN + "end_run 75")
    again = job(flags + BEGIN, SLURM_RESTART_COUNT="1")
    assert ("flags --resume_from_checkpoint none\n" in again.stdout, job.state()["start_step"]) == (True, 0), (
        again.stderr
    )
    assert job.state()["unsaved_starts"] == 1
    # So does the first start of a new job in the folder of one that has.
    job(flags + BEGIN + "save 4; end_run 75")
    new = job(flags + "SLURM_JOB_ID=8; " + BEGIN)
    assert ("flags --resume_from_checkpoint none\n" in new.stdout, job.state()["start_step"]) == (True, 0), new.stderr


NOT_KNOWN = "could discard checkpoints of this job"


# What becomes of the job's record between its starts.
LOSSES = {
    "missing": lambda path: path.unlink(),
    "damaged": lambda path: path.write_text("job=7 failures=1\n"),
    "another job's": lambda path: path.write_text(path.read_text().replace('"job": "7"', '"job": "6"')),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "endless": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "broken link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("flag", ["--overwrite", "--resume_from_checkpoint none"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_requeued_job_that_does_not_know_whether_it_has_saved_undoes_nothing(job, flag, loss):
    flags = f"MPZERO_EXTRA_FLAGS=({flag}); "
    assert job(flags + BEGIN + "save 4").returncode == 0
    LOSSES[loss](job.record("7"))
    # A requeue by hand, after the job has ended for this reason, knows no more.
    for restart in ("1", "2"):
        again = job(flags + BEGIN, SLURM_RESTART_COUNT=restart)
        assert again.returncode == 1 and NOT_KNOWN in again.stderr, again.stdout + again.stderr
        assert "flags" not in again.stdout and not job.requeued()
    # A first start begins whatever lies there; so does a job without these flags.
    first = job("SLURM_JOB_ID=8; " + flags + BEGIN + "rm -rf checkpoints/restarts.8.txt")
    assert f"flags {flag}\n" in first.stdout, first.stderr
    assert "flags --bf16" in job("MPZERO_EXTRA_FLAGS=(--bf16); " + BEGIN, SLURM_RESTART_COUNT="3").stdout
    # Where there is no checkpoint at all, there is nothing to undo.
    (job.checkpoints / "latest").unlink()
    assert f"flags {flag}\n" in job(flags + "SLURM_JOB_ID=9; " + BEGIN, SLURM_RESTART_COUNT="1").stdout


@pytest.mark.parametrize("unwritten", ["first", "second"])
def test_a_start_that_could_not_be_noted_is_not_known_later(job, unwritten):
    flags = "MPZERO_EXTRA_FLAGS=(--overwrite); "
    if unwritten == "second":
        assert job(flags + "begin_run; end_run 75").returncode == 75
    # As on a file system that is full.
    full = "ulimit -S -f 0; begin_run; ulimit -S -f unlimited; save 4"
    noted = job(flags + full, SLURM_RESTART_COUNT="0" if unwritten == "first" else "1")
    assert noted.returncode == 0 and "restarts.7.txt cannot be written" in noted.stderr, noted.stderr
    again = job(flags + "begin_run", SLURM_RESTART_COUNT="2")
    assert again.returncode == 1 and NOT_KNOWN in again.stderr, again.stdout + again.stderr


def test_a_start_records_the_last_failure_even_if_a_later_start_was_stopped(job):
    blame(job.checkpoints)
    stopped = Evidence(job.checkpoints, hosts=2, ranks=1, start="20991126T120000Z-0123abcd")
    stopped.rank(0, "signal", provisional=True)
    assert job("begin_run").returncode == 0
    assert json.loads((job.checkpoints / "failure.json").read_text())["hosts"] == ["node1"]
