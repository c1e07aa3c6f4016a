"""What others can write, or a user sets by mistake, is data to the scripts: nothing of it runs, and no job is lost."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from evidence import Evidence, blame

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue.state import State, format_state

# Each would leave a file "canary" in the folder that the scripts run in, were it ever taken for more than text. (PATH,
# since bash looks at the index of a variable that is set.)
COMMANDS = ["PATH[$(id>canary)]", "$(id>canary)", "`id>canary`", ";id>canary;", "x'$(id>canary)'", '"$(id>canary)"']
ODD = [
    "08",
    "-1",
    "99999999999999999999",
    "18446744073709551617",
    "*",
    "1 2",
    "\x1b]0;title\x07",
    "--help",
    "%n%s",
    "é",
]
HOSTILE = COMMANDS + ODD
ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b2J\u202e"


def assert_harmless(checkout, *results: subprocess.CompletedProcess) -> None:
    assert not list(checkout.root.parent.rglob("canary"))
    for result in results:
        text = result.stdout + result.stderr
        assert not [character for character in text if not character.isprintable() and character != "\n"], repr(text)
        # Neither bash nor Python has stumbled.
        assert not re.search(r"(bash|\.sh|\.sbatch): line \d|Traceback", result.stderr), result.stderr


def endless(path):
    path.symlink_to("/dev/zero")


def linked(path):
    """To a record or report that would count, were it not for the link."""
    other = path.with_name(f"{path.name}.other")
    other.write_text(format_state(State("7", failures=3, last_run_failed=True)))
    path.symlink_to(other)


FORMS = {
    "empty": lambda path: path.write_text(""),
    "short": lambda path: path.write_text("job=7 failures=1\n"),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "huge": lambda path: path.write_bytes(b"x" * (2 << 20)),
    "commands": lambda path: path.write_text(format_state(State("7", blamed_nodes=(*COMMANDS, "f*")))),
    "pipe": os.mkfifo,
    "endless": endless,
    "folder": lambda path: path.mkdir(),
    "link": linked,
    "broken link": lambda path: path.symlink_to("nowhere"),
}


# Any form of one file, and of the others those that could hang, be endless, or lead elsewhere.
FILES = ["latest", "failures", "doctor.json", "doctor.json.node1.hung"]
OF_OTHERS = [(name, form) for name in FILES for form in ("short", "pipe", "endless", "link")]


@pytest.mark.parametrize(("name", "form"), [*(("restarts.7.txt", form) for form in FORMS), *OF_OTHERS])
def test_a_file_of_any_form_loses_no_job(job, name, form):
    FORMS[form](job.checkpoints / name)
    end = "refuse_hosts 1" if name.startswith("doctor") else "end_run 1"
    result = job(f"begin_run; {end}")
    assert_harmless(job.checkout, result)
    assert result.returncode == 1 and job.requeued(), result.stdout + result.stderr
    # A file that says nothing may do so in silence, but one that is not looked at is named.
    said = [line for line in result.stderr.splitlines() if f"/{name}" in line]
    quiet = form == "broken link" or name == "failures" or (name == "latest" and form in ("empty", "short", "link"))
    assert said or quiet, result.stderr
    again = job(f"forget_doctor; forget_restarts; begin_run; {end}")
    assert_harmless(job.checkout, again)
    assert again.returncode == 1, again.stderr


def test_what_is_kept_is_not_written_through_a_link(job, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine\n")
    for name in ("restarts.7.txt", "restarts.7.txt.part"):
        (job.checkpoints / name).symlink_to(mine)
    result = job("begin_run; end_run 1")
    assert_harmless(job.checkout, result)
    assert job.requeued() and mine.read_text() == "mine\n"
    assert job.state()["failures"] == 1


def test_a_folder_that_cannot_be_written_does_not_requeue_for_ever(job):
    (job.record("7")).mkdir()
    first = job("begin_run; MPZERO_STOP=USR1; end_run 138", SLURM_RESTART_COUNT="2")
    assert first.returncode == 138 and job.requeued(), first.stderr
    assert first.stderr.count("cannot be written") == 2
    last = job("begin_run; MPZERO_STOP=USR1; end_run 138", SLURM_RESTART_COUNT="3")
    assert last.returncode == 1 and "started this job 4 times" in last.stderr, last.stderr
    assert job.checkout.calls().count("scontrol requeue") == 1


NAMES = [COMMANDS[0], "08", "99999999999999999999", "1 2", ESCAPES, "../../etc/passwd"]


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("tiny-{}steps", value) for value in NAMES), ("{}", NAMES[0]), *(("{}-5steps", value) for value in NAMES[::5])],
)
def test_the_name_of_a_checkpoint_is_data(job, name, value):
    (job.checkpoints / "latest").write_text(name.replace("{}", value))
    results = [
        job("begin_run; end_run 75"),
        job("MPZERO_EXTRA_FLAGS=(--resume_from_checkpoint checkpoints); begin_run; end_run 1"),
        job("METRICS_FILE=none; closing_message"),
    ]
    assert_harmless(job.checkout, *results)
    assert [result.returncode for result in results] == [75, 1, 0], [result.stderr for result in results]
    assert job.checkout.calls().count("scontrol requeue") == 2


@pytest.mark.parametrize("value", [*COMMANDS, ESCAPES, "-x", "a\tb", "", 7, None, ["node0"], {"a": "node0"}])
def test_what_a_report_says_is_data(job, value):
    found = Evidence(job.checkpoints, hosts=2, ranks=1)
    found.write("start.json", {**found.common, "ranks": 2, "hosts": [value, "node1"], "started": value})
    found.rank(1, "device_error", error=value, phase=value, step=value, channels=value, neighbours=[value])
    result = job("begin_run; end_run 1")
    assert_harmless(job.checkout, result)
    assert "Excluded from now on: node1." in result.stdout, result.stdout + result.stderr
    found = {"status": "failure", "message": value, "blame": value}
    hosts = [{"host": value, "findings": [found]}, value, {"host": "node0", "findings": [found, value]}]
    (job.checkpoints / "doctor.json").write_text(json.dumps({"job": "7", "restart": 0, "hosts": hosts}))
    result = job("begin_run; refuse_hosts 1")
    assert_harmless(job.checkout, result)
    assert "node0 is rejected" in result.stderr and "Excluded from now on: node0." in result.stdout, result.stderr


ANSWERS = [
    "", "exit", "exit $(id>canary)", "exit PATH[$(id>canary)]", "exit 1000", "exit -1", " exit 0", "exit 0 ", "EXIT 0",
    "exit 0\nexit 0", "start", "start \nasked", "start own; id>canary", "start $(id>canary)", "eval id>canary",
]  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_not_to_the_letter_is_not_acted_on(job, answer):
    (job.checkout.root / "answer").write_text(answer)
    (job.checkout.root / "scripts/requeue/__main__.py").write_text(
        "import os; os.write(3, open('answer', 'rb').read())\n"
    )
    started = job("begin_run; echo began")
    assert started.returncode == 0 and started.stdout.endswith("began\n")
    again = job("MPZERO_EXTRA_FLAGS=(--overwrite); begin_run; echo began", SLURM_RESTART_COUNT="1")
    assert again.returncode == 1 and "began" not in again.stdout, "it could undo what an earlier start has saved"
    result = job("end_run 9")
    assert_harmless(job.checkout, started, again, result)
    assert result.returncode == 9 and job.requeued(), result.stdout + result.stderr
    assert result.stderr.count("\n") == 1 and "every start counts" in result.stderr
    last = job("end_run 9", SLURM_RESTART_COUNT="3")
    assert last.returncode == 9 and "not requeuing the job" in last.stderr
    assert job.checkout.calls().count("scontrol requeue") == 1


@pytest.mark.parametrize(
    ("status", "starts", "ends", "requeued"),
    [(2, "0", 2, False), (125, "0", 2, False), (75, "3", 75, True), (138, "3", 138, False), (1, "x", 1, True)],
)
def test_without_an_answer_the_safe_way_is_taken(job, status, starts, ends, requeued):
    (job.checkout.root / "scripts/requeue/command.py").unlink()
    result = job(f"end_run {status}", SLURM_RESTART_COUNT=starts)
    assert (result.returncode, job.requeued()) == (ends, requeued), result.stderr


@pytest.mark.parametrize("value", COMMANDS[:1] + ODD[:2])
@pytest.mark.parametrize("command", ["squeue", "sinfo", "scontrol"])
def test_what_slurm_prints_is_data(job, command, value):
    blame(job.checkpoints)
    job.replace(command, f'called {command} "$@"; printf \'%s\\n\' "$VALUE"; exit')
    result = job("begin_run; end_run 138", VALUE=value)
    assert_harmless(job.checkout, result)
    assert result.returncode == 1


JOB_RECORD = """NumTasks={0} NtasksPerN:B:S:C={0}:0 TresPerNode=gpu:{0} TresPerJob=gpu:{0} TresPerTask=gpu:2
     Nodes=n1 CPU_IDs=0 Mem={0} GRES=gpu:{0}
     Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:h100:2
"""
CONFIGURATION = "echo PreemptType=preempt/qos KillWait=$VALUE PreemptMode=REQUEUE GraceTime=$VALUE"
READERS = [
    'slurm_gpus "$JOB_RECORD" 2',
    'least_of "$VALUE"',
    'gpus_in "gpu:$VALUE"',
    "cores_here",
    "count_gpus",
    "signal_lead /dev/null",
    f"scontrol() {{ {CONFIGURATION}; }}; stop_grace none",
    'squeue() { echo "$VALUE"; }; seconds_left || true',
    "MPZERO_RETRY_SECONDS=$VALUE; retry_seconds",
    'sinfo() { echo "$VALUE"; }; report_memory "$JOB_RECORD"; refuse_heterogeneous "$JOB_RECORD HetJobId=$VALUE"',
    "require_stop_signal sbatch/train.sbatch",
    "process_limit() { echo 9; }; OMP_NUM_THREADS=$VALUE require_limits 1",
    "export MAX_STEP=$VALUE; warn_of_mistyped",
]


@pytest.mark.parametrize("command", READERS)
def test_records_of_slurm_are_data(checkout, command):
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\necho gpu:8\n")
    for value in COMMANDS[:2] + ODD[:4]:
        variables = dict.fromkeys(("VALUE", "SLURM_CPUS_ON_NODE", "CUDA_VISIBLE_DEVICES"), value)
        record = {"JOB_RECORD": JOB_RECORD.format(value), "SBATCH_SIGNAL": f"B:USR1@{value}"}
        fixed = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "MPZERO_RETRY_SECONDS": "0"}
        assert_harmless(checkout, checkout.shell(command, **variables, **record, **fixed))


NUMBERS = [
    "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_RESTART_COUNT", "MAX_RESTARTS", "STUCK_AFTER", "GRACE_PERIOD",
    "NPROC", "MAX_STEPS", "SEQ_LENGTH", "CHECKPOINT_FREQ", "MAX_DOCUMENTS",
]  # fmt: skip
OTHERS = [
    "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_NODELIST", "SLURM_JOB_PARTITION", "SLURM_CPUS_ON_NODE", "SBATCH_SIGNAL",
    "MPZERO_RETRY_SECONDS", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "DATASET_CONFIG_NAME", "CHECKPOINT_DIR",
    "NETWORK", "TOKENIZER", "MODEL_TYPE", "CHECK_NODES", "LOCAL_DATASET", "CUDA_VERSION", "SECONDS", "METRICS_FILE",
]  # fmt: skip


def test_the_job_that_these_tests_disturb_trains(job):
    result = job.checkout.submit("--train_data", "mine.h5")
    assert result.returncode == 0, result.stdout + result.stderr
    assert job.checkout.flags()["train_data"] == "mine.h5"


OF_SLURM = [name for name in NUMBERS if name.startswith("SLURM")]


@pytest.mark.parametrize(
    ("name", "value"),
    [*((name, value) for name in NUMBERS for value in (COMMANDS[0], "-1")), *((name, "08") for name in OF_SLURM)],
)
def test_what_is_no_number_is_refused(job, name, value):
    result = job.checkout.submit("--train_data", "mine.h5", **{name: value})
    assert_harmless(job.checkout, result)
    assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
    assert f"{name}=" in result.stderr
    assert not (job.checkout.record / "mpzero.flags").exists()


def test_a_number_of_the_user_may_begin_with_0(job):
    numbers = dict.fromkeys(set(NUMBERS) - set(OF_SLURM), "08")
    result = job.checkout.submit("--train_data", "mine.h5", **numbers)
    assert_harmless(job.checkout, result)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", OTHERS)
def test_other_variables_are_data(job, name):
    result = job.checkout.submit("--train_data", "mine.h5", **{name: COMMANDS[0]})
    assert not list(job.checkout.root.parent.rglob("canary"))
    assert result.returncode in (0, 2), result.stderr
    assert result.returncode == 0 or result.stderr.count("\n") == 1, result.stderr


@pytest.mark.parametrize("value", COMMANDS[:1])
@pytest.mark.parametrize("flag", ["grace_period", "resume_from_checkpoint", "stuck_after", "network", "device"])
def test_flags_are_data(job, flag, value):
    result = job.checkout.submit("--train_data", "mine.h5", f"--{flag}", value, FAKE_EXIT="138")
    assert_harmless(job.checkout, result)
    if flag == "resume_from_checkpoint":
        assert result.returncode == 138 and "requeue 7\n" in job.checkout.calls(), result.stderr
    else:
        assert result.returncode == 2 and f"--{flag}" in result.stderr


@pytest.mark.parametrize("text", [ESCAPES + "\n", "PATH[$(id>canary)]", "x" * 100_000, "\0\0"])
def test_who_holds_a_lock_is_data(checkout, text):
    lock = checkout.root / "logs/setup.lock"
    lock.write_text(text)
    held = 'exec {held}>>logs/setup.lock; flock "$held"; run_long() { :; }; lock logs/setup.lock build'
    result = checkout.shell(held)
    assert_harmless(checkout, result)
    assert result.returncode == 0, result.stderr
    assert "Waiting for" in result.stdout and len(result.stdout) < 400 and result.stderr == ""


@pytest.mark.parametrize("form", ["pipe", "link"])
def test_a_lock_that_is_no_file_is_refused(checkout, form):
    mine = checkout.home / "mine"
    mine.write_text("mine")
    lock = checkout.root / "logs/setup.lock"
    if form == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(mine)
    result = checkout.shell("lock logs/setup.lock build; echo went on")
    assert (result.returncode, result.stdout, mine.read_text()) == (2, "", "mine")
    assert result.stderr.count("\n") == 1 and "logs/setup.lock" in result.stderr


@pytest.mark.parametrize("value", [*COMMANDS, ESCAPES])
def test_stamps_are_data(checkout, value):
    for stamp in (".venv/mpzero-synced", "build/mpzero-configured"):
        (checkout.root / stamp).write_text(value)
    checkout.program(checkout.bin / "uv", "#!/bin/bash\n")
    result = checkout.shell("sync_environment cuda; build_programs off 0 mpzero")
    assert_harmless(checkout, result)
    assert result.returncode == 0 and "cmake" in checkout.calls()
