"""How train.sbatch, of which Slurm runs a copy, finds its checkout."""

import subprocess

import pytest

NO_ANSWER = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


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
