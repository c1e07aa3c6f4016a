"""app/check.py: flags, variables, files, data and model are checked before anything is installed or built."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
GOOD = {"MODEL_TYPE": "qwen3_tiny", "TOKENIZER": "bytes", "DS_CONFIG": str(REPOSITORY / "configs/ds_config_tiny.json")}
BUILD = Path(os.environ.get("BUILD_DIR", REPOSITORY / "build"))


def problems(*flags: str, **variables: str) -> list[str]:
    """Of the program alone, by the Python of this test, without the packages of its environment."""
    environment = {"PATH": os.environ["PATH"], **GOOD, **variables}
    command = [sys.executable, "-S", REPOSITORY / "app/check.py", *flags]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    lines = result.stderr.splitlines()
    assert result.returncode == (2 if lines else 0) and result.stdout == "", result
    assert all(line.startswith("mpzero: error: ") for line in lines)
    return lines


def test_a_run_without_a_mistake_has_no_problem(tmp_path):
    assert problems() == []
    assert (
        problems("--bf16", "--fp8", "rowwise", "--seed=7", "--lr_scheduler_type", "linear", "--local_rank", "0") == []
    )
    assert problems(DATASET="allenai/c4", TOKENIZER="Qwen/Qwen3-0.6B", LOCAL_DATASET="false") == []


def test_all_problems_are_listed_at_once(tmp_path):
    (tmp_path / "ds.json").write_text('{"bf16": }')
    (tmp_path / "text.h5").write_text("A text")
    lines = problems(
        "--lr", "3", "--max_steps=many", "--seed", "--fp8", "int4", "--beta2", "1.5", "--bf16", "perhaps",
        MAX_STEPS="0", NPROC="two", SINK="tensorbord", MODEL_TYPE="qwen3_06b", DS_CONFIG=str(tmp_path / "ds.json"),
        TRAIN_DATA=str(tmp_path / "text.h5"), VALIDATION_DATA=str(tmp_path / "none.h5"), PREPARE_ARGS="--splitt train",
    )  # fmt: skip
    wanted = [
        ("--lr", "--learning_rate"), ("--max_steps", "many"), ("--seed", "needs a value"), ("--fp8", "rowwise"),
        ("--beta2", "less than 1"), ("--bf16", "perhaps"), ("MAX_STEPS=0",), ("NPROC=two",), ("SINK=tensorbord",),
        ("PREPARE_ARGS", "--split?"), ("MODEL_TYPE=qwen3_06b", "qwen3_0_6b"), ("DS_CONFIG=", "line 1"),
        ("TRAIN_DATA=", "text.h5"), ("VALIDATION_DATA=", "none.h5"),
    ]  # fmt: skip
    assert len(lines) == len(wanted), "\n".join(lines)
    for line, words in zip(lines, wanted, strict=True):
        assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"chosen": "a", "rejected": "b"}, "DPO"),
        ({"prompt": "a", "completion": "b", "label": True}, "KTO"),
        ({"prompt": "a"}, "GRPO"),
        ({"image": "a.png", "caption": "b"}, "--text_column"),
    ],
)
def test_data_for_what_mpzero_does_not_do_is_recognized(tmp_path, row, word):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    for data in (file, tmp_path):
        [line] = problems(DATASET=str(data))
        assert word in line and "docs/limits.md" in line
    assert problems(DATASET=str(file), PREPARE_ARGS="--text_column caption") == []


@pytest.mark.skipif(not (BUILD / "bin/mpzero").exists(), reason="mpzero is not built")
@pytest.mark.parametrize(
    "flag", ["--lr", "--steps", "--resume", "--deepspeed", "--output_dir", "--eval_steps", "--hlp", "--lerning_rate",
             "--micro_batch_size", "--learning-rate", "--fp16", "--tensor_parallel_size", "--xyzzy"],
)  # fmt: skip
def test_an_unknown_flag_gets_the_advice_of_the_program(flag):
    """Oracle: mpzero train, whose table and distance the check repeats."""
    said = subprocess.run([BUILD / "bin/mpzero", "train", flag], capture_output=True, text=True).stderr
    [line] = problems(flag)
    assert line.split("; ")[0] == said.splitlines()[0].split("; ")[0]
    assert (
        line.endswith("?") == said.rstrip().endswith("?")
        and line.rpartition("--")[2] == said.strip().rpartition("--")[2]
    )


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_nothing_is_built_before_a_mistake_is_named(checkout):
    result = checkout.run("--hlp", MAX_STEPS="many")
    assert result.returncode == 2 and checkout.calls() == ""
    assert "--help?" in result.stderr and "MAX_STEPS=many" in result.stderr
    result = checkout.submit("--hlp", CHECK_NODES="false")
    assert result.returncode == 2 and "--help?" in result.stderr
