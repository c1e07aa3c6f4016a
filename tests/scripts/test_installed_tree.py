"""The scripts in a tree that `cmake --install` made, with stand-ins for the programs."""

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")

NOBODY = 65534


def install(checkout) -> None:
    """Makes it an installed tree whose environment is a folder outside."""
    shutil.move(checkout.root / "build/bin", checkout.root / "bin")
    shutil.rmtree(checkout.root / "build")
    shutil.move(checkout.root / ".venv", checkout.root.parent / "venv")
    (checkout.root / "logs").rmdir()
    (checkout.root / "installation").write_text(f"{checkout.root.parent / 'venv'}\n")


def run(checkout, script: str, *flags: str, user: int | None = None, **variables: str):
    is_job = script == "sbatch/train.sbatch"
    if is_job:
        checkout.install_slurm()
    return subprocess.run(
        ["bash", str(checkout.root / script), "--train_data=mine.h5", *flags],
        cwd=checkout.home,
        env=checkout.job_environment(variables) if is_job else checkout.environment(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        user=user,
    )


SCRIPTS = ["singlenode/train-singlenode.sh", "sbatch/train.sbatch"]


@pytest.fixture
def tree(checkout):
    install(checkout)
    return checkout


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_environment_that_is_gone_is_named(tree, script):
    (tree.root / "installation").write_text("/no/such/environment\n")
    result = run(tree, script)
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1 and "/no/such/environment" in result.stderr and "uv sync" in result.stderr
    # uv is named as this machine can run it, or the sentence says that there is none.
    for there in (False, True):
        tree.program(tree.bin / "uv", f"#!/bin/bash\nexit {0 if there else 1}\n")
        said = run(tree, script).stderr
        assert (f"{tree.bin}/uv sync" in said, "uv, which is not in PATH here" in said) == (there, not there), said
    assert tree.calls() == ""


def test_a_job_of_a_checkout_without_its_environment_says_what_makes_it(checkout):
    shutil.rmtree(checkout.root / ".venv")
    result = run(checkout, "sbatch/train.sbatch")
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1 and "train-singlenode.sh --build-only" in result.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_line_of_the_environment_may_lack_its_end(tree, script):
    (tree.root / "installation").write_text(str(tree.root.parent / "venv"))
    result = run(tree, script)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_its_own_environment_gets_the_runtime_that_libfabric_looks_for(tree, script):
    shutil.copytree(tree.root.parent / "venv", tree.root / ".venv")
    wheel = tree.root / ".venv/lib/python3.11/site-packages/nvidia/cu13"
    (wheel / "lib").mkdir(parents=True)
    (wheel / "lib/libcudart.so.13").write_text("the wheel's")
    assert run(tree, script).returncode == 0
    assert (wheel / "libcudart/libcudart.so").read_text() == "the wheel's"


def test_a_runtime_that_cannot_be_linked_is_said_where_libfabric_needs_it(tree):
    lib = tree.root.parent / "venv/lib/python3.11/site-packages/nvidia/cu13/lib"
    lib.mkdir(parents=True)
    (lib / "libcudart.so.13").write_text("")
    (lib.parent / "libcudart").write_text("no folder")
    for has_efa, words in (("true", 1), ("false", 0)):
        result = tree.shell(f"has_efa() {{ {has_efa}; }}; link_cuda_runtime")
        assert (result.returncode, result.stderr.count("\n")) == (0, words)
        assert words == 0 or "libcudart.so, which libfabric needs" in result.stderr


@contextmanager
def read_only(checkout, prepare):
    """A tree that the user of the tests' runs may not write to, once `prepare` has made it; and that user."""
    # A folder of pytest's is closed to other users.
    with tempfile.TemporaryDirectory(prefix="mpzero-installed-") as folder:
        Path(folder).chmod(0o755)
        tree = type(checkout)(Path(folder))
        prepare(tree)
        user = NOBODY if os.geteuid() == 0 else None
        for path in (tree.record, tree.home):
            path.chmod(0o777)
        for path in [tree.root, *tree.root.rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222 | 0o444 | (0o111 if path.is_dir() else 0))
        yield tree, user
        for path in [tree.root, *(path for path in tree.root.rglob("*") if path.is_dir())]:
            path.chmod(0o755)


def build(checkout, ninja: str = "ninja: no work to do.") -> None:
    """Makes it the built checkout of a colleague."""
    checkout.program(checkout.root / ".venv/bin/ninja", f"#!/bin/bash\necho '{ninja}'\n")


@pytest.fixture(params=[install, build], ids=["installed", "checkout"])
def read_only_tree(checkout, request):
    with read_only(checkout, request.param) as tree:
        yield tree


def test_a_read_only_tree_trains_with_folders_of_the_users_own(read_only_tree):
    tree, user = read_only_tree
    mine = {name: str(tree.home / name) for name in ("LOG_DIR", "DATA_DIR", "CHECKPOINT_DIR")}
    script = SCRIPTS[0]
    for name in ("LOG_DIR", "CHECKPOINT_DIR"):
        result = run(tree, script, user=user, **{other: path for other, path in mine.items() if other != name})
        assert result.returncode == 2, result.stdout + result.stderr
        assert result.stderr.count("\n") == 1 and f"{name}=" in result.stderr
    result = run(tree, script, user=user, **mine)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Permission denied" not in result.stderr
    logs = list((tree.home / "LOG_DIR").glob("*.out"))
    assert len(logs) == 1 and "Batch 10 Loss" in logs[0].read_text()
    assert f"Log:         {logs[0]}\n" in result.stdout


def test_data_is_prepared_where_the_user_may_write(read_only_tree):
    tree, user = read_only_tree
    mine = {name: str(tree.home / name) for name in ("LOG_DIR", "CHECKPOINT_DIR")}

    def prepare(**variables: str):
        command = [str(tree.root / SCRIPTS[0])]
        environment = tree.environment({**mine, **variables})
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, user=user)

    refused = prepare()
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused.stderr
    assert "DATA_DIR" in refused.stderr
    assert prepare(DATA_DIR=str(tree.home / "data")).returncode == 0
    assert tree.flags()["train_data"].startswith(str(tree.home / "data"))


def test_a_colleague_cannot_build_and_learns_who_can(checkout):
    with read_only(checkout, build) as (tree, user):
        command = [str(tree.root / SCRIPTS[0]), "--build-only"]
        result = subprocess.run(
            command, env=tree.environment({}), capture_output=True, text=True, timeout=60, user=user
        )
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert "have its owner run this script with --build-only" in result.stderr


def test_an_environment_whose_python_a_colleague_cannot_run_is_named(checkout):
    """As one that uv has made with a Python in its owner's home."""

    def link(tree) -> None:
        build(tree)
        home = tree.root.parent / "owner"
        home.mkdir()
        python = tree.root / ".venv/bin/python"
        python.rename(home / "python3.11")
        python.symlink_to(home / "python3.11")
        home.chmod(0o700)
        (home / "python3.11").chmod(0o600)  # the owner may run the tests

    with read_only(checkout, link) as (tree, user):
        for script in SCRIPTS:
            result = run(tree, script, user=user, CHECKPOINT_DIR=str(tree.home / "run"))
            said = f"{tree.root}/.venv/bin/python is a symlink to {tree.root.parent}/owner/python3.11, which "
            assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
            assert said in result.stderr and "UV_PYTHON=/usr/bin/python3" in result.stderr


def test_programs_of_other_sources_are_used_with_a_warning(checkout):
    with read_only(checkout, lambda tree: build(tree, "[1/9] Building CXX object")) as (tree, user):
        mine = {name: str(tree.home / name) for name in ("LOG_DIR", "DATA_DIR", "CHECKPOINT_DIR")}
        result = run(tree, SCRIPTS[0], user=user, **mine)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("do not match the sources") == 1
