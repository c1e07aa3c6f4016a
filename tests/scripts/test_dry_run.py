"""The scripts ask `mpzero train --dry_run` before they prepare data, look at nodes and train."""

import shutil

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
    assert "Looking at" not in result.stdout and not (checkout.root / "data").exists()
    assert ("requeue 7" in checkout.calls()) == (begin is submit and status == 1)


@pytest.mark.parametrize("begin", [start, submit])
def test_it_is_asked_of_the_run_that_follows(checkout, begin):
    result = begin(checkout, "--seed", "7", NPROC="2", CHECK_NODES="false")
    assert result.returncode == 0, result.stdout + result.stderr
    words = asked(checkout)
    trained = (checkout.record / "mpzero.flags").read_text().splitlines()
    assert words[: len(trained)] == trained
    assert words[len(trained) :] == ["--dry_run", "--world_size", "2", "--nproc_per_node", "2", "--tokenizer", "bytes"]
    # What it prints of a run that can start is printed by the run.
    assert "Dry run" not in result.stdout + result.stderr


@pytest.mark.parametrize("begin", [start, submit])
def test_a_user_who_asks_for_it_sees_it_and_trains_nothing(checkout, begin):
    result = begin(checkout, "--dry_run", DATASET="allenai/c4")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("Dry run: nothing is trained or written.\n")
    assert checkout.prepared() == [] and not (checkout.record / "mpzero.flags").exists()
    assert asked(checkout).count("--dry_run") == 1


def test_a_job_that_is_asked_only_leaves_nothing(checkout):
    assert submit(checkout, "--dry_run").returncode == 0
    assert not (checkout.root / "checkpoints").exists()
