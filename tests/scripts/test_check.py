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
        SEQ_LENGTH="0", NPROC="two", SINK="tensorbord", MODEL_TYPE="qwen3_06b", DS_CONFIG=str(tmp_path / "ds.json"),
        TRAIN_DATA=str(tmp_path / "text.h5"), VALIDATION_DATA=str(tmp_path / "none.h5"), PREPARE_ARGS="--splitt train",
    )  # fmt: skip
    wanted = [
        ("--lr", "--learning_rate"), ("--max_steps", "many"), ("--seed", "needs a value"), ("--fp8", "rowwise"),
        ("--beta2", "less than 1"), ("--bf16", "perhaps"), ("SEQ_LENGTH=0",), ("NPROC=two",), ("SINK=tensorbord",),
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
    assert problems(DATASET=str(file), PREPARE_ARGS=f"--text_column {next(iter(row))}") == []


def test_weights_without_a_tokenizer_need_one(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "a.txt").write_text("text")
    of_weights = {"INIT_FROM": str(tmp_path), "MODEL_TYPE": tmp_path.name, "MODEL_IS_FROM_WEIGHTS": "true"}
    [line] = problems(**of_weights, TOKENIZER="", DATASET=str(tmp_path / "a.txt"))
    assert "TOKENIZER" in line and f"--init_from {tmp_path}" in line
    assert problems(**of_weights, DATASET=str(tmp_path / "a.txt")) == []


def test_all_that_conversations_need_is_named_at_once(tmp_path):
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}]}) + "\n")
    length, template = problems(DATASET=str(file), SEQ_LENGTH="256")
    assert 'PREPARE_ARGS="--seq_length 256"' in length
    assert all(word in template for word in ("TOKENIZER=", "MODEL_TYPE", "--chat_template"))
    assert problems(DATASET=str(file), PREPARE_ARGS="--seq_length 256", TOKENIZER="Qwen/Qwen3-0.6B") == []
    assert problems(DATASET=str(file), PREPARE_ARGS="--seq_length 256 --chat_template chat.jinja") == []
    # Pairs need rows, but no template.
    file.write_text(json.dumps({"prompt": "a", "completion": "b"}) + "\n")
    [line] = problems(DATASET=str(file), PREPARE_ARGS="--packing false")
    assert 'PREPARE_ARGS="--packing false --seq_length' in line


@pytest.mark.skipif(not (BUILD / "bin/mpzero").exists(), reason="mpzero is not built")
@pytest.mark.parametrize(
    "flag", ["--lr", "--steps", "--resume", "--deepspeed", "--output_dir", "--eval_steps", "--hlp", "--lerning_rate",
             "--micro_batch_size", "--learning-rate", "--max-steps", "--output-dir", "--fp16",
             "--tensor_parallel_size", "--xyzzy"],
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


def test_numbers_are_checked_as_the_program_checks_them():
    for text in ("1_000", "+5", " 5", "\u0665", "9" * 21):
        assert len(problems(f"--max_steps={text}")) == 1, text
    for text in ("inf", "nan", "1_0", "1e"):
        assert len(problems(f"--learning_rate={text}")) == 1, text
    assert problems("--learning_rate=.5e-3", "--beta1", "1e-2") == []
    assert len(problems("--grace_period=30", GRACE_PERIOD="abc")) == 1
    assert problems("--max_steps=5", MAX_STEPS="5") == []


def test_files_of_other_programs_are_read(tmp_path):
    """Excel writes a byte order mark."""
    (tmp_path / "a.csv").write_text("text,b\n1,2\n", encoding="utf-8-sig")
    (tmp_path / "ds.json").write_text("{}", encoding="utf-8-sig")
    assert problems(DATASET=str(tmp_path / "a.csv"), DS_CONFIG=str(tmp_path / "ds.json"), TOKENIZER="bytes") == []
    (tmp_path / "ds.json").write_text('{"a":' * 5000 + "1" + "}" * 5000)
    os.mkfifo(tmp_path / "pipe")
    [line] = problems(DS_CONFIG=str(tmp_path / "ds.json"), TRAIN_DATA=str(tmp_path / "pipe"))
    assert "ds.json" in line


def test_each_mistake_has_its_advice(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tb\n1\t2\n")
    (tmp_path / "a.txt").write_text("text")
    missing = str(tmp_path / "no/weights/here")
    for words, variables, advice in [
        (["--seed=1", "--seed=2"], {}, "twice"), (["--nodes", "4"], {}, "sbatch --nodes"),
        ([str(tmp_path / "a.txt")], {}, "--train_data"), (["--init_from", missing], {"INIT_FROM": missing}, missing),
        ([], {"VALIDATION_FREQ": "-1"}, "VALIDATION_FREQ"), ([], {"TRAIN_DATA": missing}, "DATASET"),
    ]:  # fmt: skip
        [line] = problems(*words, **variables)
        assert advice in line
    assert problems(VALIDATION_FREQ="0") == problems("--dry_run", TRAIN_DATA=missing) == []
    assert problems(DATASET=str(tmp_path / "a.tsv")) == []


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_nothing_is_built_before_a_mistake_is_named(checkout):
    result = checkout.run("--hlp", MAX_STEPS="many")
    assert result.returncode == 2 and checkout.calls() == ""
    assert "--help?" in result.stderr and "MAX_STEPS=many" in result.stderr
    result = checkout.run("--max_steps", "many")
    assert result.stderr.count("many") == 1 and "--max_steps" in result.stderr
    result = checkout.submit("--hlp", CHECK_NODES="false")
    assert result.returncode == 2 and "--help?" in result.stderr


def problems_of_file(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "ds.json"
    file.write_text(text)
    lines = problems(DS_CONFIG=str(file))
    assert all(line.startswith(f"mpzero: error: DS_CONFIG={file}") for line in lines)
    return lines


def test_all_keys_of_ds_config_are_checked_at_once(tmp_path):
    wrong = {
        "train_batch_size": 1.5, "gradient_cliping": 1, "steps_per_print": None, "wandb": {"enabled": True},
        "zero_optimization": {"stage": 4, "offload_optimizer": {"device": "disk", "pinmemory": True}, "zenflow": {}},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9], "eps": -1}}, "bf16": "yes",
        "sparse_gradients": True, "gradient_predivide_factor": 1, "elasticity": {"enabled": True}, "freeze": ["a", ""],
    }  # fmt: skip
    wanted = [
        ("train_batch_size is 1.5",), ("gradient_cliping", "did you mean gradient_clipping?"),
        ("zero_optimization.stage is 4", "at most 3"), ("offload_optimizer.device", "none, cpu, nvme"),
        ("offload_optimizer.pinmemory", "offload_optimizer.pin_memory?"), ("zero_optimization.zenflow", "remove it"),
        ("optimizer.params.betas", "[0.9, 0.95]"), ("optimizer.params.eps is -1",), ("bf16 is", "object"),
        ("sparse_gradients is true",), ("elasticity", "remove it"), ("freeze",),
    ]  # fmt: skip
    lines = problems_of_file(tmp_path, json.dumps(wrong))
    assert len(lines) == len(wanted), "\n".join(lines)
    for line, words in zip(lines, wanted, strict=True):
        assert all(word in line for word in words), line
    [line] = problems_of_file(tmp_path, '{"freeze": [], "freeze": []}')
    assert "freeze" in line and "twice" in line


@pytest.mark.parametrize("file", sorted((REPOSITORY / "configs").glob("ds_config*.json")), ids=lambda file: file.stem)
def test_the_shipped_files_have_no_problem(file):
    assert problems(DS_CONFIG=str(file)) == []


@pytest.mark.skipif(not (BUILD / "bin/mpzero").exists(), reason="mpzero is not built")
@pytest.mark.parametrize("text", [
    '{"train_batch_size": "eight"}', '{"train_batch_size": 0}', '{"train_batch_size": 5e8}',
    '{"bf16": {"enabled": 1}}', '{"zero_optimization": {"stage": "2"}}',
    '{"zero_optimization": {"stage3_max_live_parameters": "auto"}}', '{"zero_optimization": {"stage": "auto"}}',
    '{"scheduler": {"type": "warmuplr"}}', '{"scheduler": {"type": "Linear"}}', '{"amp": {}}',
    '{"amp": {"opt_level": "O1"}}', '{"amp": false}', '{"prescale_gradients": 0}', '{"fp8": {"recipe": 1}}',
    '{"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}}', '{"lora": {"alpha": -1}}',
    '{"zero.stage": 1}',
])  # fmt: skip
def test_the_check_is_never_stricter_than_the_program(tmp_path, text):
    """Oracle: mpzero train, whose first problem is one of the check's; a file that it reads has none."""
    lines = problems_of_file(tmp_path, text)
    file = tmp_path / "ds.json"
    command = [BUILD / "bin/mpzero", "train", "--dry_run", "--train_data=none.h5", f"--deepspeed_config={file}"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY).stderr
    for line in lines:
        file_and_key = " ".join(line.split("DS_CONFIG=")[1].split()[:2])
        assert f"error: {file_and_key}" in said, (line, said)


@pytest.mark.parametrize(
    ("rows", "arguments", "words"),
    [
        ({"body": "a", "id": 1}, "", ("no column 'text'", "body, id", "--text_column")),
        ({"txet": "a"}, "", ("--text_column txet",)),
        ({"body": "a"}, "--text_column bdoy", ("no column 'bdoy'", "--text_column body")),
        ({"body": "a"}, "--text_column=rows.jsonl=body", None),
        ({"body": "a"}, "--skip_empty", None),
        ({"source": "a", "target": "b"}, "--format pairs --seq_length 8 --source_length 4", None),
        ({"instruction": "a", "output": "b"}, "--seq_length 8 --chat_template c.jinja", None),
        ({"text": "a"}, "", None),
    ],
)
def test_a_missing_column_is_named_before_a_build(tmp_path, rows, arguments, words):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(rows) + "\n")
    lines = problems(DATASET=str(file), PREPARE_ARGS=arguments)
    assert len(lines) == (words is not None), lines
    assert words is None or all(word in lines[0] for word in words)
