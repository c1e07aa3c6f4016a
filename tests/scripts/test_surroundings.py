"""What the user's shell and machine bring along: mistyped variables, full folders, limits, locales, POSIX's rules."""

import os
import re
import subprocess
from pathlib import Path

import pytest

DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"


def warnings(checkout, **variables: str) -> list[str]:
    result = checkout.shell("warn_of_mistyped", **variables)
    assert result.returncode == 0, result.stderr
    return result.stderr.splitlines()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("MAX_STEP", "MAX_STEPS"), ("MAXSTEPS", "MAX_STEPS"), ("max_steps", "MAX_STEPS"), ("MAX_SETPS", "MAX_STEPS"),
        ("DATASETS", "DATASET"), ("DATSET", "DATASET"), ("CHECKPOINTDIR", "CHECKPOINT_DIR"), ("NPROCS", "NPROC"),
        ("MPZERO_GPU", "MPZERO_GPUS"), ("TOKENISER", "TOKENIZER"),
    ],
)  # fmt: skip
def test_a_variable_that_is_close_to_a_known_one_is_named_with_it(checkout, given, meant):
    lines = warnings(checkout, **{given: "7"})
    assert len(lines) == 1 and f" {given} " in lines[0] and f" {meant}" in lines[0]


def test_other_variables_are_none_of_ours(checkout):
    names = ["CUDNN_VERSION", "XDG_DATA_DIRS", "LINK", "NCCL_NET", "MAX_JOBS", "DATA", "HF_DATASETS_CACHE", "CXXFLAGS"]
    listed = checkout.shell('printf "%s\\n" "${MPZERO_VARIABLES[@]}"').stdout.split()
    assert warnings(checkout, **dict.fromkeys([*names, *listed], "7")) == []


def test_the_list_is_that_of_the_documents(checkout):
    listed = set(checkout.shell('printf "%s\\n" "${MPZERO_VARIABLES[@]}"').stdout.split())
    rows = re.findall(r"^\|((?: `[A-Z_0-9]+`,?)+) \|", (DOCUMENTS / "slurm.md").read_text(), re.MULTILINE)
    rows += re.findall(r"^\|((?: `MPZERO_[A-Z_0-9]+`,?)+) \|", (DOCUMENTS / "eks.md").read_text(), re.MULTILINE)
    assert listed == {name for row in rows for name in re.findall(r"[A-Z_0-9]+", row)}


@pytest.mark.parametrize("script", ["single", "job"])
def test_a_start_warns_of_it_once(checkout, script):
    result = start(checkout, script, MAX_STEP="7")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(" MAX_STEP ") == 1, result.stderr


def start(checkout, script: str, **variables: str) -> subprocess.CompletedProcess:
    """train-singlenode.sh, or train.sbatch as a job of one node."""
    if script == "single":
        return checkout.run(**variables)
    return checkout.submit(**variables)


@pytest.mark.parametrize("script", ["single", "job"])
@pytest.mark.parametrize("variables", [{"POSIXLY_CORRECT": "1"}, {"LC_ALL": "xx_XX.UTF-8"}])
def test_posix_rules_and_missing_locales_change_nothing(checkout, script, variables):
    result = start(checkout, script, **variables)
    assert result.returncode == 0 and "zero_to_fp32" in result.stdout, result.stderr
    # bash itself warns before the first line of a script runs.
    assert result.stderr.count("setlocale") <= 2, result.stderr
    names = checkout.rank_environment()
    assert "POSIXLY_CORRECT" not in names and names.get("LC_ALL") != "xx_XX.UTF-8"


@pytest.mark.parametrize(("variable", "folder"), [("TMPDIR", "full"), ("SHARED_MEMORY", "full"), ("TMPDIR", "gone")])
def test_a_folder_without_room_is_named_before_mpirun(checkout, variable, folder):
    place = checkout.root.parent / folder
    if folder == "full":
        place.mkdir()
        # Stand-ins for a full file system: no byte of a file there can be written.
        full = f'[[ "$(readlink /proc/$$/fd/1)" != {place}/* ]] || exit 1'
        checkout.program(checkout.bin / "head", f'#!/bin/bash\n{full}\nexec /usr/bin/head "$@"\n')
    result = checkout.run(**{variable: str(place)})
    assert result.returncode == 2 and result.stderr.count("mpzero: error:") == 1, result.stderr
    assert str(place) in result.stderr and not (checkout.record / "mpzero.pids").exists()
    assert folder != "full" or list(place.iterdir()) == []


def test_room_is_what_can_be_written(checkout):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = checkout.root.parent / "small"
    place.mkdir()
    command = f"mount -t tmpfs -o size=3m tmpfs {place} && source scripts/common.sh && source scripts/machine.sh && "
    for size, status in ((2, 0), (4, 2)):
        script = f"{command} require_room {place} {size} words"
        environment = checkout.environment({"MPZERO_ROOT": str(checkout.root)})
        result = subprocess.run(
            ["unshare", "--mount", "bash", "-c", script],
            cwd=checkout.root,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert result.returncode == status and (str(place) in result.stderr) == (status == 2), result.stderr


@pytest.mark.parametrize(
    ("before", "status", "words"),
    [
        ("ulimit -f 1000", 2, ["ulimit -f", "1000 KiB"]),
        ("ulimit -f 1000000", 0, ["ulimit -f", "976 MiB"]),
        ("process_limit() { echo 20; }", 2, ["ulimit -u", " 20 "]),
        ("process_limit() { echo 100000; }", 0, []),
        ("", 0, []),
    ],
)
def test_a_limit_that_is_too_low_is_named(checkout, before, status, words):
    result = checkout.shell(f"{before}\nrequire_limits 2")
    assert result.returncode == status, result.stderr
    assert result.stderr.count("\n") == bool(words) and all(word in result.stderr for word in words), result.stderr
