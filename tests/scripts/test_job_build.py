"""A Slurm job with GPUs whose programs have no kernels for them: it builds them, waits, is stopped meanwhile."""

import fcntl
import os
import signal
import subprocess
import time

import pytest

SCONTROL = """#!/bin/bash
case "$1 $2" in
  "show job") printf '   JobState=RUNNING Requeue=1 NumTasks=1\\n   Command=%s\\n' "$CHECKOUT/sbatch/train.sbatch" ;;
  "requeue "*) echo requeued >>"$RECORD/calls" ;;
esac
"""
GPU = "#!/bin/bash\necho 'GPU 0: NVIDIA H100 (UUID: GPU-0)'\n"
# Ends when a test opens the gate.
GATED = """#!/bin/bash
[[ " $* " != *" -n "* ]] || exit 0
echo "$(basename "$0") started" >>"$RECORD/calls"
until [[ -e $RECORD/gate ]]; do sleep 0.1 & wait $!; done
"""


class Start:
    """A start of train.sbatch; what it prints is in a file."""

    def __init__(self, checkout, *flags: str, **variables: str):
        self.output = checkout.record / f"output.{variables.get('SLURM_JOB_ID', '7')}.{time.monotonic_ns()}"
        with open(self.output, "w") as output:
            self.process = subprocess.Popen(
                ["bash", str(checkout.root / "sbatch/train.sbatch"), "--train_data", "mine.h5", *flags],
                cwd=checkout.root,
                env=checkout.job_environment(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.output.read_text()

    def wait(self) -> int:
        return self.process.wait(timeout=120)


@pytest.fixture
def start(job):
    """Starts the job in a checkout that was built without kernels."""
    checkout = job.checkout
    checkout.install_slurm(SCONTROL)
    checkout.program(checkout.bin / "nvidia-smi", GPU)
    stamp = checkout.root / "build/mpzero-configured"
    stamp.write_text(f"{stamp.read_text().split()[0]} off none\n")
    starts: list[Start] = []

    def begin(*flags: str, **variables: str) -> Start:
        starts.append(Start(checkout, *flags, **variables))
        return starts[-1]

    yield begin
    for started in starts:
        if started.process.poll() is None:
            os.killpg(started.process.pid, signal.SIGKILL)


def wait_until(condition, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def gate_ninja(checkout) -> None:
    checkout.program(checkout.root / ".venv/bin/ninja", GATED)


def test_a_job_waits_for_the_kernels_that_another_builds(job, start):
    checkout = job.checkout
    gate_ninja(checkout)
    first = start()
    wait_until(lambda: "ninja started" in checkout.calls())
    second = start(SLURM_JOB_ID="8", CHECKPOINT_DIR="other")
    wait_until(lambda: "Waiting for process" in second.said())
    assert not (checkout.record / "mpzero.flags").exists()
    (checkout.record / "gate").touch()
    assert (first.wait(), second.wait()) == (0, 0), first.said() + second.said()
    assert checkout.calls().count("ninja") == checkout.calls().count("cmake") == 1
    assert "Training" in second.said() and "building the kernels now" not in second.said()


@pytest.mark.parametrize("failing", ["ninja", "cmake"])
def test_a_build_of_kernels_that_failed_is_not_taken_for_done(job, start, failing):
    checkout = job.checkout
    works = (checkout.root / ".venv/bin/ninja").read_text()
    checkout.program(checkout.root / ".venv/bin" / failing, works + "exit 1\n")
    for _ in range(2):
        failed = start()
        assert failed.wait() == 2, failed.said()
        assert "Training" not in failed.said() and failed.said().count("error: ") == 1
    assert checkout.calls().count(failing) == 2
    checkout.program(checkout.root / ".venv/bin" / failing, works)
    for _ in range(2):
        assert start().wait() == 0
    assert checkout.calls().count(failing) == 3


@pytest.mark.parametrize("program", ["ninja", "cmake"])
def test_a_stop_while_the_kernels_are_built_requeues_the_job(job, start, program):
    checkout = job.checkout
    # Of another run, which the job moves aside at its first start.
    (job.checkpoints / "latest").write_text("qwen3_tiny-500steps\n")
    works = (checkout.root / ".venv/bin/ninja").read_text()
    # ninja ends so when it is interrupted.
    text = GATED.replace("echo", "trap 'exit 2' USR1\necho", 1)
    checkout.program(checkout.root / ".venv/bin" / program, text)
    first = start("--overwrite")
    wait_until(lambda: f"{program} started" in checkout.calls())
    first.process.send_signal(signal.SIGUSR1)
    assert first.wait() == 143, first.said()
    assert "requeued" in checkout.calls() and "error: " not in first.said()
    assert job.state()["has_saved"] is False and job.state()["unsaved_starts"] == 1
    checkout.program(checkout.root / ".venv/bin" / program, works)
    second = start("--overwrite", SLURM_RESTART_COUNT="1")
    assert second.wait() == 0, second.said()
    assert "--overwrite" in (checkout.record / "mpzero.flags").read_text().splitlines()


def test_a_stop_while_another_builds_keeps_how_the_job_begins(job, start):
    checkout = job.checkout
    (job.checkpoints / "latest").write_text("qwen3_tiny-500steps\n")
    with open(checkout.root / "logs/setup.lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        first = start("--overwrite")
        wait_until(lambda: "Waiting for" in first.said())
        first.process.send_signal(signal.SIGUSR1)
        assert first.wait() > 128, first.said()
    assert "requeued" in checkout.calls()
    kept = job.state()
    assert kept["has_saved"] is False
    second = start("--overwrite", SLURM_RESTART_COUNT="1")
    assert second.wait() == 0, second.said()
    assert "--overwrite is ignored" not in second.said()
    assert "--overwrite" in (checkout.record / "mpzero.flags").read_text().splitlines()
