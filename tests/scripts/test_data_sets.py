"""The data set that train-singlenode.sh has prepared before it trains."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")


def test_data_given_as_a_flag_is_not_prepared(checkout):
    assert checkout.run("--train_data", "mine.h5").returncode == 0
    assert checkout.prepared() == []
    assert "validation_data" not in checkout.flags()


def test_a_data_set_by_name_is_prepared_with_the_models_tokenizer(checkout):
    result = checkout.run(
        DATASET="allenai/c4", DATASET_CONFIG_NAME="en", LOCAL_DATASET="false", MODEL_TYPE="qwen3_0_6b"
    )
    assert result.returncode == 0, result.stderr
    prepared = checkout.prepared()
    assert prepared[prepared.index("--tokenizer") + 1] == "Qwen/Qwen3-0.6B"
    assert prepared[prepared.index("--dataset_config_name") + 1] == "en"
    assert "allenai/c4" in prepared
    assert checkout.flags()["train_data"].startswith("data/c4-en-Qwen3-0.6B-")


def test_a_configuration_of_a_folder_is_not_dropped(checkout):
    (checkout.root / "corpus").mkdir()
    result = checkout.run(DATASET="corpus", DATASET_CONFIG_NAME="en", LOCAL_DATASET="true")
    assert result.returncode == 0, result.stderr
    prepared = checkout.prepared()
    assert prepared[prepared.index("--dataset_config_name") + 1] == "en"


def test_variables_of_a_data_set_without_one_are_answered(checkout):
    result = checkout.run(DATASET_CONFIG_NAME="en", LOCAL_DATASET="true", MAX_DOCUMENTS="7", PREPARE_ARGS="--files *")
    assert result.returncode == 0, result.stderr
    for variable in ("DATASET_CONFIG_NAME=en", "LOCAL_DATASET=true", "MAX_DOCUMENTS=7", "PREPARE_ARGS=--files *"):
        assert f"{variable} has no effect: DATASET is not set" in result.stderr


def test_flags_for_the_preparation_reach_it_and_make_another_data_set(checkout):
    (checkout.root / "corpus").mkdir()
    files = set()
    for arguments in ("", "--text_column body --files *.csv"):
        assert checkout.run(DATASET="corpus", PREPARE_ARGS=arguments).returncode == 0
        files.add(checkout.flags()["train_data"])
    assert len(files) == 2
    prepared = checkout.prepared()
    assert prepared[prepared.index("--text_column") + 1] == "body"
    assert prepared[prepared.index("--files") + 1] == "*.csv"


def test_quotes_in_the_flags_for_the_preparation_are_those_of_a_shell(checkout):
    (checkout.root / "corpus").mkdir()
    arguments = "--document_separator '{title}: {body}' --split \"train[:5 %]\""
    assert checkout.run(DATASET="corpus", PREPARE_ARGS=arguments).returncode == 0
    prepared = checkout.prepared()
    assert prepared[prepared.index("--document_separator") + 1] == "{title}: {body}"
    assert prepared[prepared.index("--split") + 1] == "train[:5 %]"
    result = checkout.run(DATASET="corpus", PREPARE_ARGS="--split 'train")
    assert result.returncode == 2 and "PREPARE_ARGS=--split 'train has an unclosed quote" in result.stderr


def test_two_data_sets_of_the_same_name_are_kept_apart(checkout):
    files = set()
    for folder in ("a", "b"):
        (checkout.root / folder / "text").mkdir(parents=True)
        assert checkout.run(DATASET=f"{folder}/text", LOCAL_DATASET="true").returncode == 0
        files.add(checkout.flags()["train_data"])
    assert len(files) == 2


def test_data_that_cannot_be_prepared_ends_the_run_before_it_starts(checkout):
    result = checkout.run(FAKE_PYTHON_FAILS="prepare_data.py")
    assert result.returncode == 2
    assert result.stderr.strip() == "error: no such data set"
    assert not (checkout.record / "mpzero.flags").exists()


def test_a_data_set_that_has_changed_is_made_again_as_the_advice_says(checkout):
    """With the real prepare_data.py: the text has grown since."""
    for folder in ("app/prepare", "app/prepare_data.py", "app/chat_template.py"):
        if folder == "app/prepare":
            shutil.copytree(REPOSITORY / folder, checkout.root / folder, dirs_exist_ok=True)
        else:
            shutil.copy(REPOSITORY / folder, checkout.root / folder)
    text = REPOSITORY / ".venv/bin/python"
    checkout.program(checkout.root / ".venv/bin/python", f'#!/bin/bash\nexec {text} "$@"\n')
    corpus = checkout.root / "my corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("a first text\n" * 200)
    variables = {"DATASET": "my corpus", "TOKENIZER": "bytes", "PREPARE_ARGS": "--document_separator line"}
    assert checkout.run(**variables).returncode == 0
    first = checkout.flags()["train_data"]
    (corpus / "b.txt").write_text("a second text\n" * 200)
    refused = checkout.run(**variables)
    assert refused.returncode == 2
    advice = re.search(r"use PREPARE_ARGS=(.*) to recreate it", refused.stderr)
    assert advice, refused.stderr
    result = checkout.run(**{**variables, "PREPARE_ARGS": shlex.split(advice.group(1))[0]})
    assert result.returncode == 0, result.stderr
    # The same files, so that a start without the advice finds them.
    assert checkout.flags()["train_data"] == first
    assert checkout.run(**variables).returncode == 0


def test_a_requeued_job_does_not_make_its_data_again(checkout):
    for restart, existing in (("0", "--overwrite"), ("1", "--if_missing")):
        arguments = checkout.shell(
            'read_prepare_args; echo "$MPZERO_EXISTING"', PREPARE_ARGS="--overwrite", SLURM_RESTART_COUNT=restart
        )
        assert arguments.stdout.strip() == existing


def test_a_data_set_without_validation_trains_without(checkout):
    (checkout.root / "corpus").mkdir()
    assert checkout.run(DATASET="corpus").returncode == 0  # the stand-in writes no file
    assert "validation_data" not in checkout.flags()
    assert checkout.run(DATASET="corpus", VALIDATION_DATA="mine.h5").returncode == 0
    result = checkout.run("--validation_data", "mine.h5", DATASET="corpus")
    assert result.returncode == 0 and checkout.flags()["validation_data"] == "mine.h5"
