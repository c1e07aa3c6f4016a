"""What train-singlenode.sh makes of variables and flags: what mpzero is started with."""

import os
import shutil
from itertools import pairwise

import pytest

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")


GPUS = "#!/bin/bash\n" + "".join(f"echo 'GPU {i}: NVIDIA H100 (UUID: GPU-{i})'\n" for i in range(3))


def test_one_rank_for_each_gpu_and_the_users_configuration(checkout):
    checkout.program(checkout.bin / "nvidia-smi", GPUS)
    result = checkout.run()
    assert result.returncode == 0, result.stderr
    assert checkout.rank_environment()["OMPI_COMM_WORLD_SIZE"] == "3"
    flags = checkout.flags()
    assert flags["model_type"] == "qwen3_0_6b"
    assert flags["deepspeed_config"] == "configs/ds_config.json"
    assert flags["checkpoint_dir"] == "checkpoints"
    # What the user leaves open, mpzero decides.
    assert set(flags) == {
        "deepspeed_config", "deepspeed_config_yields", "train_data", "validation_data", "checkpoint_dir",
        "metrics_file", "device", "model_type",
    }  # fmt: skip


@pytest.mark.parametrize(("devices", "count"), [("0,2", "2"), ("1", "1")])
def test_visible_devices_limit_the_ranks(checkout, devices, count):
    checkout.program(checkout.bin / "nvidia-smi", GPUS)
    assert checkout.run(CUDA_VISIBLE_DEVICES=devices).returncode == 0
    assert checkout.rank_environment()["OMPI_COMM_WORLD_SIZE"] == count


@pytest.mark.parametrize("devices", ["", "-1", "NoDevFiles"])
def test_no_visible_device_means_the_cpu(checkout, devices):
    checkout.program(checkout.bin / "nvidia-smi", GPUS)
    assert checkout.run(CUDA_VISIBLE_DEVICES=devices).returncode == 0
    assert checkout.flags()["model_type"] == "qwen3_tiny"


def test_variables_of_the_environment_win(checkout):
    result = checkout.run(
        MAX_STEPS="7", CHECKPOINT_FREQ="3", SEQ_LENGTH="64", MODEL_TYPE="llama_3_8b", NPROC="5",
        DS_CONFIG="configs/ds_config_tiny.json", CHECKPOINT_DIR="elsewhere",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    flags = checkout.flags()
    assert (flags["max_steps"], flags["checkpoint_freq"], flags["seq_length"]) == ("7", "3", "64")
    assert flags["model_type"] == "llama_3_8b"
    assert flags["checkpoint_dir"] == "elsewhere"
    assert flags["metrics_file"] == "elsewhere/metrics.jsonl"
    assert checkout.rank_environment()["OMPI_COMM_WORLD_SIZE"] == "5"


OF_FLAGS = {
    "MODEL_CONFIG": "my model/config.json", "DS_CONFIG": "my.json", "SEQ_LENGTH": "64", "MAX_STEPS": "7",
    "CHECKPOINT_FREQ": "3", "CHECKPOINT_DIR": "elsewhere", "METRICS_FILE": "elsewhere/m.jsonl", "TRAIN_DATA": "a.h5",
    "VALIDATION_DATA": "b.h5", "VALIDATION_FREQ": "5", "STUCK_AFTER": "77", "NETWORK": "socket", "GRACE_PERIOD": "60",
}  # fmt: skip


@pytest.mark.parametrize("folder", [False, True])
def test_each_variable_reaches_mpzero(checkout, folder):
    for name in ("my model/config.json", "my.json", "a.h5", "b.h5"):
        (checkout.root / name).parent.mkdir(exist_ok=True)
        (checkout.root / name).write_bytes(b"\x89HDF\r\n\x1a\n" if name.endswith(".h5") else b"{}")
    model = {"MODEL_CONFIG": "my model"} if folder else {}
    result = checkout.run(**OF_FLAGS | model, TOKENIZER="bytes")
    assert result.returncode == 0, result.stderr
    flags = checkout.flags()
    assert "model_type" not in flags
    names = {"DS_CONFIG": "deepspeed_config"}
    for variable, value in OF_FLAGS.items():
        assert flags[names.get(variable, variable.lower())].removeprefix(f"{checkout.root}/") == value, variable


@pytest.mark.parametrize("extra", [["--"], []])
def test_extra_flags_pass_through_and_replace_the_variables(checkout, extra):
    result = checkout.run(*extra, "--max_steps", "9", "--checkpoint_dir=other", "--seed", "7", MAX_STEPS="3")
    assert result.returncode == 0, result.stderr
    words = (checkout.record / "mpzero.flags").read_text().splitlines()
    assert words[words.index("--max_steps") + 1] == "9"
    assert words.count("--max_steps") == 1
    assert "--checkpoint_dir=other" in words and "--checkpoint_dir" not in words
    assert words[words.index("--seed") + 1] == "7"
    assert words[words.index("--metrics_file") + 1] == "other/metrics.jsonl"


@pytest.mark.parametrize("flag", ["epochs", "num_train_epochs"])
def test_epochs_replace_the_default_number_of_steps(checkout, flag):
    assert checkout.run(f"--{flag}", "2").returncode == 0
    assert "max_steps" not in checkout.flags()


@pytest.mark.parametrize(("flag", "value"), [("save_steps", "7"), ("save_strategy", "epoch"), ("save_strategy", "no")])
def test_the_trainers_flags_replace_the_default_between_checkpoints(checkout, flag, value):
    assert checkout.run(f"--{flag}", value).returncode == 0
    assert "checkpoint_freq" not in checkout.flags()


def test_saving_by_steps_keeps_the_default_between_checkpoints(checkout):
    assert checkout.run("--save_strategy", "steps", CHECKPOINT_FREQ="3").returncode == 0
    assert checkout.flags()["checkpoint_freq"] == "3"


@pytest.mark.parametrize(
    ("variable", "flag"),
    [
        ("MAX_STEPS=50", "--num_train_epochs 2"),
        ("MAX_STEPS=50", "--epochs=2"),
        ("CHECKPOINT_FREQ=100", "--save_strategy no"),
        ("CHECKPOINT_FREQ=100", "--save_strategy=epoch"),
        ("CHECKPOINT_FREQ=100", "--save_steps 7"),
    ],
)
def test_variables_that_a_flag_of_another_name_replaces_are_answered(checkout, variable, flag):
    name, value = variable.split("=")
    result = checkout.run(*flag.split(), **{name: value})
    assert result.returncode == 0, result.stderr
    given = flag.replace("=", " ")
    assert result.stderr.count(f"{variable} has no effect: {given} ") == 1, result.stderr
    # What the user did not set is a default, and nothing to be warned of.
    assert "has no effect" not in checkout.run(*flag.split()).stderr


ERRORS = [
    ({"CUDA_VERSION": "99.9"}, ["CUDA_VERSION=99.9", "cuda-99.9", "does not exist"]),
    ({"MAX_STEPS": "many"}, ["MAX_STEPS=many"]),
    (
        {"CHECKPOINT_DIR": "/proc/mine"},
        ["CHECKPOINT_DIR=/proc/mine", "No such file or directory", "choose a different"],
    ),
    ({"CHECKPOINT_FREQ": "-1"}, ["CHECKPOINT_FREQ=-1"]),
    ({"NPROC": "0"}, ["NPROC=0"]),
    ({"LOCAL_DATASET": "yes"}, ["LOCAL_DATASET=yes", "true", "false"]),
    ({"DATASET": "/nowhere/wikitext-2", "LOCAL_DATASET": "true"}, ["/nowhere/wikitext-2", "LOCAL_DATASET"]),
    ({"DS_CONFIG": "missing.json"}, ["missing.json"]),
    ({"MODEL_TYPE": "unheard_of", "DATASET": "some/name"}, ["unheard_of", "qwen3_0_6b"]),
]


@pytest.mark.parametrize(("variables", "words"), ERRORS, ids=[next(iter(v)) for v, _ in ERRORS])
def test_a_mistake_gets_one_sentence_and_status_2(checkout, variables, words):
    result = checkout.run(**variables)
    assert result.returncode == 2
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("mpzero: error: ")
    assert all(word in lines[0] for word in words), lines[0]
    assert not (checkout.record / "mpzero.flags").exists()


@pytest.mark.parametrize("setting", ["MAX_RESTARTS=many", "STUCK_AFTER=0", "CHECK_NODES=maybe"])
def test_a_mistake_in_a_setting_of_the_job_ends_it_with_status_2(checkout, setting):
    name, value = setting.split("=")
    result = checkout.submit(**{name: value})
    assert result.returncode == 2 and setting in result.stderr, result.stderr
    assert "requeue" not in checkout.calls()


def test_an_installed_cuda_version_is_used(checkout, tmp_path):
    (tmp_path / "cuda-12.9/bin").mkdir(parents=True)
    result = checkout.run(CUDA_VERSION="12.9", CUDA_PARENT=str(tmp_path))
    assert result.returncode == 0, result.stderr
    environment = checkout.rank_environment()
    assert environment["CUDA_HOME"] == str(tmp_path / "cuda-12.9")
    assert environment["PATH"].startswith(f"{tmp_path}/cuda-12.9/bin:")


@pytest.mark.parametrize(("flags", "device"), [((), "cuda"), (("--device", "cpu"), "cpu"), (("--device=auto",), None)])
def test_gpus_that_are_there_are_used_or_the_run_ends(checkout, flags, device):
    checkout.program(checkout.bin / "nvidia-smi", GPUS)
    assert checkout.run(*flags).returncode == 0
    words = (checkout.record / "mpzero.flags").read_text().splitlines()
    assert len([word for word in words if word.startswith("--device")]) == 1
    assert device is None or words[words.index("--device") + 1] == device
    on_cpu = "2" if os.cpu_count() > 1 else "1"
    assert checkout.rank_environment()["OMPI_COMM_WORLD_SIZE"] == (on_cpu if device == "cpu" else "3")


def tokenizer_of(prepared: list[str]) -> str:
    """Of the last preparation."""
    return [value for flag, value in pairwise(prepared) if flag == "--tokenizer"][-1]


def test_weights_bring_their_model_and_tokenizer(checkout):
    weights = checkout.root / "weights/Some-1B"
    weights.mkdir(parents=True)
    (weights / "tokenizer.json").write_text("{}")
    result = checkout.run("--", "--init_from", "weights/Some-1B")
    assert result.returncode == 0, result.stderr
    assert "model_type" not in checkout.flags()
    assert "Training Some-1B with" in result.stdout
    assert tokenizer_of(checkout.prepared()) == "weights/Some-1B"
    # One of GPT-2's kind needs two files; the shipped text is bytes without a tokenizer.
    (weights / "tokenizer.json").rename(weights / "vocab.json")
    (weights / "config.json").write_text('{"mpzero_tokenizer": "an-org/Recorded"}')
    assert checkout.run("--", "--init_from", "weights/Some-1B").returncode == 0
    assert tokenizer_of(checkout.prepared()) == "an-org/Recorded"
    (weights / "config.json").write_text("{}")
    assert checkout.run("--", "--init_from", "weights/Some-1B").returncode == 0
    assert tokenizer_of(checkout.prepared()) == "bytes"
    (weights / "merges.txt").touch()
    assert checkout.run("--", "--init_from", "weights/Some-1B").returncode == 0
    assert tokenizer_of(checkout.prepared()) == "weights/Some-1B"
    # A name on the hub is that of its tokenizer, too.
    assert checkout.run("--", "--init_from", "an-org/Some-2B").returncode == 0
    assert "an-org/Some-2B" in checkout.prepared()
    # What the user names holds; mpzero compares it with the folder's config.json.
    assert checkout.run("--", "--init_from", "weights/Some-1B", MODEL_TYPE="llama_3_8b").returncode == 0
    assert checkout.flags()["model_type"] == "llama_3_8b"


def test_a_checkpoint_brings_the_tokenizer_that_it_records(checkout):
    # The name is not a preset's, whose tokenizer would be a guess.
    (checkout.root / "weights/qwen3_tiny-9steps").mkdir(parents=True)
    (checkout.root / "a.txt").write_text("text")
    flags = ("--", "--init_from", "weights/qwen3_tiny-9steps")
    for more in ({}, {"DATASET": "a.txt"}):
        assert checkout.run(*flags, FAKE_TOKENIZER="an-org/Recorded", **more).returncode == 0
        assert tokenizer_of(checkout.prepared()) == "an-org/Recorded"
        assert checkout.run(*flags, FAKE_TOKENIZER="an-org/Recorded", TOKENIZER="an-org/Given", **more).returncode == 0
        assert tokenizer_of(checkout.prepared()) == "an-org/Given"
    refused = checkout.run(*flags, DATASET="a.txt")
    assert refused.returncode == 2 and "set TOKENIZER" in refused.stderr


def test_only_a_file_that_the_user_names_must_agree_with_the_flags(checkout):
    assert checkout.run("--", "--learning_rate", "1e-4").returncode == 0
    assert checkout.flags()["deepspeed_config_yields"] == "true"
    assert checkout.run("--", "--learning_rate", "1e-4", DS_CONFIG="configs/ds_config.json").returncode == 0
    assert "deepspeed_config_yields" not in checkout.flags()
    assert checkout.run("--", "--deepspeed_config", "configs/ds_config.json").returncode == 0
    assert "deepspeed_config_yields" not in checkout.flags()
