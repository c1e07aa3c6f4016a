"""Relative paths count from where the user is, and paths may have spaces."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from .conftest import HDF5, REPOSITORY

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")


@pytest.fixture
def mine(tmp_path) -> Path:
    """A folder of the user's own, in which the user starts the scripts."""
    folder = tmp_path / "my work"
    (folder / "texts").mkdir(parents=True)
    (folder / "weights").mkdir()
    (folder / "weights/tokenizer.json").write_text("{}")
    (folder / "ds.json").write_text("{}")
    (folder / "lr=3").mkdir()
    for name in ("a", "t", "v", "w", "lr=3/v", "lr=3/w"):
        (folder / f"{name}.h5").write_bytes(HDF5)
    return folder


def submit(checkout, mine: Path, *flags: str, **variables: str):
    return checkout.submit(*flags, cwd=mine, SLURM_SUBMIT_DIR=str(mine), **variables)


def start(checkout, mine: Path, *flags: str, **variables: str):
    return checkout.run("--", *flags, cwd=mine, **variables)


@pytest.mark.parametrize("begin", [start, submit])
def test_variables_are_paths_from_where_the_user_is(checkout, mine, begin):
    result = begin(
        checkout, mine, MODEL_TYPE="qwen3_tiny", DATASET="texts", DS_CONFIG="ds.json", CHECKPOINT_DIR="run",
        DATA_DIR="./tokens", TOKENIZER="weights",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    flags = checkout.flags()
    assert flags["deepspeed_config"] == f"{mine}/ds.json"
    assert flags["checkpoint_dir"] == f"{mine}/run"
    assert flags["metrics_file"] == f"{mine}/run/metrics.jsonl"
    assert flags["train_data"].startswith(f"{mine}/tokens/texts-weights-")
    prepared = checkout.prepared()
    assert f"{mine}/texts" in prepared and f"{mine}/weights" in prepared
    assert (mine / "run/latest").exists()


def test_each_file_of_a_mixture_is_a_path_from_where_the_user_is(checkout, mine):
    complete = f"--train_data={mine}/a.h5:0.7,/dev/null:0.3"
    result = start(checkout, mine, "--train_data=a.h5:0.7,/dev/null:0.3")
    assert result.returncode == 0, result.stdout + result.stderr
    assert complete in (checkout.record / "mpzero.flags").read_text().splitlines()


@pytest.mark.parametrize(
    ("value", "complete"),
    [
        ("v.h5", "{}/v.h5"),
        ("wiki=w.h5,code=/dev/null", "wiki={0}/w.h5,code=/dev/null"),
        ("./lr=3/v.h5,w.h5", "{0}/lr=3/v.h5,{0}/w.h5"),
        ("wiki=lr=3/w.h5", "wiki={}/lr=3/w.h5"),
    ],
)
def test_each_validation_set_is_a_path_from_where_the_user_is(checkout, mine, value, complete):
    complete = complete.format(mine)
    result = start(checkout, mine, "--train_data=t.h5", f"--validation_data={value}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"--validation_data={complete}" in (checkout.record / "mpzero.flags").read_text().splitlines()
    result = start(checkout, mine, "--train_data", "t.h5", VALIDATION_DATA=value)
    assert result.returncode == 0, result.stdout + result.stderr
    assert checkout.flags()["validation_data"] == complete


@pytest.mark.parametrize("begin", [start, submit])
def test_flags_are_paths_from_where_the_user_is(checkout, mine, begin):
    result = begin(
        checkout, mine, "--init_from", "weights", "--train_data=t.h5", "--validation_data", "v.h5",
        "--deepspeed_config", "ds.json", "--checkpoint_dir=run", "--resume_from_checkpoint", "none",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    words = (checkout.record / "mpzero.flags").read_text().splitlines()
    for words_of_flag in (
        ["--init_from", f"{mine}/weights"], ["--validation_data", f"{mine}/v.h5"],
        ["--deepspeed_config", f"{mine}/ds.json"], ["--resume_from_checkpoint", "none"],
    ):  # fmt: skip
        assert words[words.index(words_of_flag[0]) + 1] == words_of_flag[1]
    assert f"--train_data={mine}/t.h5" in words and f"--checkpoint_dir={mine}/run" in words
    assert (mine / "run/latest").exists()


def test_a_name_on_the_hub_is_no_path_unless_the_user_has_such_a_folder(checkout, mine):
    for folder in (None, mine / "an-org/Some-1B"):
        if folder is not None:
            folder.mkdir(parents=True)
        result = start(checkout, mine, "--train_data=t.h5", "--init_from=an-org/Some-1B")
        assert result.returncode == 0, result.stdout + result.stderr
        words = (checkout.record / "mpzero.flags").read_text().splitlines()
        assert f"--init_from={folder or 'an-org/Some-1B'}" in words


def test_weights_of_the_checkout_are_not_taken_for_the_users(checkout, mine):
    (checkout.root / "an-org/Some-1B").mkdir(parents=True)
    result = start(checkout, mine, "--train_data=t.h5", "--init_from=an-org/Some-1B")
    assert result.returncode == 2 and str(checkout.root / "an-org/Some-1B") in result.stderr


def test_a_log_goes_where_the_user_says(checkout, mine):
    result = start(checkout, mine, LOG_DIR="my logs")
    assert result.returncode == 0, result.stderr
    assert len(list((mine / "my logs").glob("*.out"))) == 1


@pytest.mark.parametrize("begin", [start, submit])
def test_names_of_hugging_face_stay_names(checkout, mine, begin):
    result = begin(checkout, mine, DATASET="allenai/c4", TOKENIZER="Qwen/Qwen3-0.6B")
    assert result.returncode == 0, result.stderr
    prepared = checkout.prepared()
    assert "allenai/c4" in prepared and "Qwen/Qwen3-0.6B" in prepared


def test_a_data_set_of_the_checkout_is_not_taken_for_one_of_the_users(checkout, mine):
    result = start(checkout, mine, DATASET="assets/tiny_corpus")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert f"{mine}" in result.stderr
    assert f"use DATASET={checkout.root}/assets/tiny_corpus" in result.stderr


def test_a_file_that_is_not_there_is_named_with_where_it_was_looked_for(checkout, mine):
    result = start(checkout, mine, DS_CONFIG="configs/ds_config.json")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert f"DS_CONFIG={mine}/configs/ds_config.json " in result.stderr


def test_what_the_scripts_choose_is_in_the_checkout_and_they_say_where(checkout, mine):
    result = start(checkout, mine)
    assert result.returncode == 0, result.stderr
    assert f"Metrics:     {checkout.root}/checkpoints/first_run/metrics.jsonl" in result.stdout
    assert f"  {checkout.root}/build/bin/zero_to_fp32 {checkout.root}/checkpoints/first_run " in result.stdout


def test_every_flag_that_names_a_file_is_known_here(checkout):
    text = "".join(path.read_text() for path in (REPOSITORY / "app/flags").glob("*_flags.cpp"))
    flags = re.findall(r'\.name = "(\w+)"(?:(?!\.name = ).)*?\.unit = "(?:FILE|DIR)"', text, re.DOTALL)
    known = checkout.shell('printf "%s\\n" "${MPZERO_PATH_FLAGS[@]}"').stdout.split()
    assert sorted(flags) == known


@pytest.mark.parametrize("begin", [start, submit])
def test_a_checkout_whose_path_has_a_space_trains(checkout, tmp_path, begin):
    (tmp_path / "a b").mkdir()
    checkout = type(checkout)(tmp_path / "a b")
    result = begin(checkout, checkout.root, CHECKPOINT_DIR="my run", LOG_DIR="my logs")
    assert result.returncode == 0, result.stdout + result.stderr
    assert (checkout.root / "my run/latest").exists()
    command = next(line for line in result.stdout.splitlines() if "zero_to_fp32" in line)
    assert shlex.split(command) == ["build/bin/zero_to_fp32", "my run", "my run/fp32"]
