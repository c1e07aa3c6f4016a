"""sbatch/network_experiment.sbatch before it knows its checkout."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "sbatch/network_experiment.sbatch"


def test_help_lists_the_variables_outside_of_jobs():
    result = subprocess.run(
        ["bash", str(SCRIPT), "--help"], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=True
    )
    for variable in ("NETWORKS", "STAGES", "RANKS_PER_NODE", "RESULTS_DIR"):
        assert f"  {variable}: " in result.stdout
    assert "SBATCH" not in result.stdout and result.stderr == ""


@pytest.mark.parametrize(
    ("scontrol", "job", "status", "sentence"),
    [
        ("exit 1", "", 2, "network_experiment.sbatch is a Slurm job: submit it with"),
        ("exit 1", "PATH[$(id)]", 2, "SLURM_JOB_ID"),
        ("exit 1", "7", 1, 'Slurm does not respond to "scontrol show job 7"'),
        ("echo '   Command=/nowhere/network_experiment.sbatch --seed 3'", "7", 2, "the script of this job"),
        (f"echo '   Command={SCRIPT} --overwrite false'", "7", 2, "SLURM_JOB_NUM_NODES"),
    ],
)
def test_what_it_cannot_run_without_is_one_sentence(tmp_path, scontrol, job, status, sentence):
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/bash\n{scontrol}\n")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": job}
    result = subprocess.run(["bash", str(SCRIPT)], capture_output=True, text=True, env=environment, check=False)
    assert (result.returncode, sentence in result.stderr) == (status, True), result.stderr
    assert len(result.stderr.splitlines()) == 1 and result.stdout == ""
