"""The scripts ask `mpzero train --dry_run` before they prepare data, look at nodes and train."""

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")


def start(checkout, *flags: str, **variables: str):
    return checkout.run("--", *flags, **variables)


def submit(checkout, *flags: str, **variables: str):
    return checkout.submit(*flags, **{"CHECK_NODES": "true", **variables})


def asked(checkout) -> list[str]:
    return (checkout.record / "dry_run.flags").read_text().splitlines()


@pytest.mark.parametrize("begin", [start, submit])
@pytest.mark.parametrize("status", [1, 2])
def test_a_run_that_would_be_refused_ends_before_any_work(checkout, begin, status):
    result = begin(checkout, DATASET="allenai/c4", FAKE_DRY_RUN=str(status))
    assert result.returncode == status, result.stdout + result.stderr
    assert result.stderr == "mpzero: error: a sentence before all work\n"
    # No data, no doctor, no run. A mistake of the user's is none that another try would change.
    assert checkout.prepared() == [] and not (checkout.record / "mpzero.flags").exists()
    assert "Checking" not in result.stdout and not (checkout.root / "data").exists()
    assert ("requeue 7" in checkout.calls()) == (begin is submit and status == 1)


@pytest.mark.parametrize("begin", [start, submit])
@pytest.mark.parametrize("flags", [[], ["--dry_run=false"]])
def test_it_is_asked_of_the_run_that_follows(checkout, begin, flags):
    result = begin(checkout, "--seed", "7", *flags, NPROC="2", CHECK_NODES="false")
    assert result.returncode == 0, result.stdout + result.stderr
    words = asked(checkout)
    trained = (checkout.record / "mpzero.flags").read_text().splitlines()
    assert words[: len(trained)] == trained
    added = " ".join(words[len(trained) :])
    assert added == "--dry_run --world_size 2 --device cpu --nproc_per_node 2 --tokenizer bytes"
    # What it prints of a run that can start is printed by the run.
    assert "Dry run" not in result.stdout + result.stderr


@pytest.mark.parametrize("begin", [start, submit])
def test_a_user_who_asks_for_it_sees_it_and_trains_nothing(checkout, begin):
    result = begin(checkout, "--dry_run", DATASET="allenai/c4")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("Dry run: nothing is trained or written.\n")
    assert checkout.prepared() == [] and not (checkout.record / "mpzero.flags").exists()
    assert asked(checkout).count("--dry_run") == 1
    assert "MPZERO_PREPARES_FROM=allenai/c4" in (checkout.record / "dry_run.env").read_text().splitlines()


def test_a_job_that_is_asked_only_leaves_nothing(checkout):
    assert submit(checkout, "--dry_run").returncode == 0
    assert not (checkout.root / "checkpoints").exists()


def on_login_node(checkout, *flags: str, **variables: str) -> subprocess.CompletedProcess:
    """train.sbatch outside of a job."""
    command = ["bash", checkout.root / "sbatch/train.sbatch", *flags]
    environment = checkout.environment(variables)
    return subprocess.run(command, cwd=checkout.root, env=environment, capture_output=True, text=True, timeout=60)


def test_a_login_node_plans_the_job(checkout):
    """Of two nodes, with the GPUs of the largest that Slurm knows."""
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\necho '64 (null)'\necho '192+ gpu:h100:8(S:0-1)'\n")
    result = on_login_node(checkout, "--dry_run", "--seed", "7")
    assert result.returncode == 0, result.stderr
    words = asked(checkout)
    for flag, value in {
        "model_type": "qwen3_0_6b", "device": "cuda", "world_size": "16", "nproc_per_node": "8", "seed": "7",
    }.items():  # fmt: skip
        assert words[words.index(f"--{flag}") + 1] == value
    assert on_login_node(checkout, "--dry_run", "--seeed", "7").returncode == 2
    assert on_login_node(checkout, "--seed", "7").returncode == 2
    for typo in ("--dryrun", "--dry-run", "-dry_run"):
        result = on_login_node(checkout, typo)
        assert result.returncode == 2 and f"{typo} is not a known flag; did you mean --dry_run?" in result.stderr
    assert not (checkout.root / "checkpoints").exists() and checkout.calls() == ""


def test_a_login_node_without_gpus_says_what_it_plans(checkout):
    result = on_login_node(checkout, "--dry_run", NPROC="4")
    assert result.returncode == 0 and "planning for CPUs" in result.stdout
    words = asked(checkout)
    for flag, value in {"device": "cpu", "world_size": "8", "nproc_per_node": "4"}.items():
        assert words[words.index(f"--{flag}") + 1] == value
    assert on_login_node(checkout, "--dry_run", "--device", "cuda", NPROC="8").returncode == 0
    assert asked(checkout).count("--device") == 1 and "cuda" in asked(checkout)


def test_a_job_explains_itself(checkout):
    result = on_login_node(checkout, "--help")
    assert result.returncode == 0 and "sbatch train.sbatch" in result.stdout
    assert "  MAX_STEPS: " in result.stdout and "  CHECK_NODES: " in result.stdout and "#SBATCH" not in result.stdout
