"""How train.sbatch, of which Slurm runs a copy, finds its checkout."""

import subprocess

import pytest

NO_ANSWER = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(
    ("answers_from", "command", "status", "sentence"),
    [
        (3, "{root}/sbatch/train.sbatch", 2, "CUDA_VERSION=99.9"),
        (25, "{root}/sbatch/train.sbatch", 2, "CUDA_VERSION=99.9"),
        (3, "(null)", 2, "CUDA_VERSION=99.9"),
        (99, "{root}/sbatch/train.sbatch", 1, 'Slurm does not respond to "scontrol show job 7"'),
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
    ends = {} if answers_from < 99 else {"SLURM_JOB_END_TIME": "1"}
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_SUBMIT_DIR": str(checkout.root)}
    result = subprocess.run(
        ["bash", str(checkout.root / "sbatch/train.sbatch")],
        cwd=checkout.home,
        env=checkout.environment({**variables, "CUDA_VERSION": "99.9", "MPZERO_RETRY_SECONDS": "0", **ends}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == status, result.stderr
    # A controller that is away for longer than ten attempts is asked again while the job has its nodes, which is said.
    said = int(answers_from == 25)
    assert sentence in result.stderr and result.stderr.count("\n") == 1 + said, result.stderr
    shown = checkout.calls().count("show job")
    assert shown > 10 if said else shown == (1 if answers_from == 99 else answers_from)


def test_a_controller_that_answers_pings_alone_is_asked_again(job):
    checkout = job.checkout
    job.provide(
        "scontrol",
        f"""called "$@"
[[ $1 != ping ]] || {{ echo "Slurmctld(primary) at head is UP"; exit; }}
(($(grep -c "show job" "$RECORD/calls") > 14)) || {{ echo "{NO_ANSWER}" >&2; exit 1; }}
echo "   Command={checkout.root}/sbatch/train.sbatch NumNodes=1" """,
    )
    result = subprocess.run(
        ["bash", str(checkout.root / "sbatch/train.sbatch")],
        cwd=checkout.root,
        env=checkout.environment(
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "CUDA_VERSION": "99.9", "MPZERO_RETRY_SECONDS": "0"}
        ),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "CUDA_VERSION=99.9" in result.stderr and result.returncode == 2, result.stderr


def test_a_job_that_the_controller_does_not_know_is_not_asked_for_again(job):
    checkout = job.checkout
    message = "slurm_load_jobs error: Invalid job id specified"
    job.provide("scontrol", f'called "$@"; echo "{message}" >&2; exit 1')
    result = subprocess.run(
        ["bash", str(checkout.root / "sbatch/train.sbatch")],
        cwd=checkout.root,
        env=checkout.environment({"SLURM_JOB_ID": "7", "MPZERO_RETRY_SECONDS": "0"}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1 and checkout.calls().count("show job") == 1, result.stderr


ARRAY = (
    "JobId=7 ArrayJobId=7 ArrayTaskId=3 JobState=RUNNING\\n   Command={}\\n\\n"
    "JobId=8 ArrayJobId=7 ArrayTaskId=2 JobState=RUNNING\\n   Command=/other\\n"
)


@pytest.mark.parametrize(
    ("number", "array", "task", "name"), [("7", "7", "3", "7_3"), ("9", "7", "3", "9"), ("7", "5", "1", "7")]
)
def test_a_task_of_a_job_array_reads_its_own_record(job, number, array, task, name):
    # A job that a task of an array submits has that task's variables in its environment: they are not its own.
    checkout = job.checkout
    (checkout.root / "train.sbatch").symlink_to("sbatch/train.sbatch")
    record = ARRAY.format(f"{checkout.root}/train.sbatch")
    job.provide("scontrol", f'called scontrol "$@"; [[ $2 != job ]] || printf "{record}"')
    job.provide("srun", 'kill -USR1 "$JOB_SHELL"; echo pmix')
    result = job(
        f"SLURM_JOB_ID={number}; exec bash ./train.sbatch", SLURM_JOB_NUM_NODES="1", TRAIN_DATA="/dev/null",
        SLURM_JOB_CPUS_PER_NODE="2", SLURM_ARRAY_JOB_ID=array, SLURM_ARRAY_TASK_ID=task,
        SLURM_SUBMIT_DIR=str(checkout.root),
    )  # fmt: skip
    assert f"scontrol requeue Incomplete {name}\n" in checkout.calls(), result.stdout + result.stderr


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
    assert f"{checkout.home} contains no train.sbatch" in result.stderr
