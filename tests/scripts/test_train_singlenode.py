"""train-singlenode.sh with stand-ins for mpzero, the Python programs and the build tools; mpirun is the real one."""

import fcntl
import os
import shutil
import signal
import subprocess
import time

import pytest

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")

GPUS = "#!/bin/bash\n" + "".join(f"echo 'GPU {i}: NVIDIA H100 (UUID: GPU-{i})'\n" for i in range(3))


def test_without_a_gpu_two_ranks_train_the_small_model_on_the_shipped_text(checkout):
    result = checkout.run()
    assert result.returncode == 0, result.stderr
    flags = checkout.flags()
    assert flags["model_type"] == "qwen3_tiny"
    assert "device" not in flags
    assert flags["deepspeed_config"] == "configs/ds_config_tiny.json"
    assert flags["train_data"] == "data/tiny_corpus-bytes/train.h5"
    assert flags["validation_data"] == "data/tiny_corpus-bytes/validation.h5"
    environment = checkout.rank_environment()
    assert environment["OMPI_COMM_WORLD_SIZE"] == ("2" if os.cpu_count() > 1 else "1")
    prepared = checkout.prepared()
    assert str(checkout.root / "assets/tiny_corpus/train.txt") in prepared
    assert "--tokenizer" in prepared and "bytes" in prepared


def test_it_ends_with_the_plot_the_metrics_the_checkpoint_and_the_next_command(checkout):
    lines = checkout.run().stdout
    assert "checkpoints/first_run/loss.png" in lines
    assert "checkpoints/first_run/metrics.jsonl" in lines
    assert "checkpoints/first_run/qwen3_tiny-3steps" in lines
    assert "build/bin/zero_to_fp32 checkpoints/first_run " in lines
    assert (checkout.root / "checkpoints/first_run/loss.png").exists()


def test_the_log_holds_what_users_grep_for_and_no_progress_bar(checkout):
    result = checkout.run()
    logs = list((checkout.root / "logs").glob("*.out"))
    assert len(logs) == 1
    text = logs[0].read_text()
    assert "Batch 10 Loss: 2.12345, Speed: 3.10 samples/sec, lr: 0.000050\n" in text
    assert "progress bar" not in text and "\r" not in text
    assert "Batch 10 Loss" in result.stdout
    assert "a progress bar" in result.stderr


def test_one_rank_for_each_gpu_and_the_users_configuration(checkout):
    checkout.program(checkout.bin / "nvidia-smi", GPUS)
    result = checkout.run()
    assert result.returncode == 0, result.stderr
    assert checkout.rank_environment()["OMPI_COMM_WORLD_SIZE"] == "3"
    flags = checkout.flags()
    assert flags["model_type"] == "qwen3_0_6b"
    assert flags["deepspeed_config"] == "configs/ds_config.json"
    assert flags["seq_length"] == "2048"
    assert flags["checkpoint_dir"] == "checkpoints"
    assert "No DATASET is set" in result.stdout


@pytest.mark.parametrize(("devices", "count"), [("0,2", "2"), ("1", "1")])
def test_visible_devices_limit_the_ranks(checkout, devices, count):
    checkout.program(checkout.bin / "nvidia-smi", GPUS)
    assert checkout.run(CUDA_VISIBLE_DEVICES=devices).returncode == 0
    assert checkout.rank_environment()["OMPI_COMM_WORLD_SIZE"] == count


@pytest.mark.parametrize("devices", ["", "-1"])
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


def test_data_given_as_a_flag_is_not_prepared(checkout):
    assert checkout.run("--train_data", "mine.h5").returncode == 0
    assert checkout.prepared() == []
    assert "validation_data" not in checkout.flags()


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
        assert f"{variable} says nothing, since no DATASET is set" in result.stderr


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
    assert result.stderr.count(f"{variable} says nothing, since {given} is given") == 1, result.stderr
    # What the user did not set is a default, and nothing to be warned of.
    assert "says nothing" not in checkout.run(*flag.split()).stderr


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


def test_two_data_sets_of_the_same_name_are_kept_apart(checkout):
    files = set()
    for folder in ("a", "b"):
        (checkout.root / folder / "text").mkdir(parents=True)
        assert checkout.run(DATASET=f"{folder}/text", LOCAL_DATASET="true").returncode == 0
        files.add(checkout.flags()["train_data"])
    assert len(files) == 2


def test_the_second_start_installs_and_configures_nothing(checkout):
    result = checkout.run()
    assert result.returncode == 0
    assert "Installing" not in result.stdout and "Configuring" not in result.stdout
    calls = checkout.calls()
    assert calls.startswith("ninja ") and "cmake" not in calls and "uv" not in calls


def test_another_lock_file_is_synced_and_configured_again(checkout):
    with open(checkout.root / "uv.lock", "a") as lock:
        lock.write("\n")
    checkout.program(checkout.bin / "uv", '#!/bin/bash\nprintf "uv %s\\n" "$*" >>"$RECORD/calls"\n')
    assert checkout.run().returncode == 0
    calls = checkout.calls()
    assert "uv sync --frozen --inexact --group cuda" in calls
    assert "cmake --preset release" in calls
    assert checkout.run().returncode == 0
    assert checkout.calls().count("uv sync") == 1
    assert checkout.calls().count("cmake --preset") == 1


def test_it_works_from_any_folder_and_through_links(checkout, tmp_path):
    link = tmp_path / "bin" / "start"
    link.symlink_to(checkout.root / "train-singlenode.sh")
    result = subprocess.run([link], cwd="/", env=checkout.environment({}), capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert (checkout.root / "checkpoints/first_run/latest").exists()


@pytest.mark.parametrize("status", [1, 2])
def test_the_exit_status_is_mpzeros_and_its_sentence_is_not_buried(checkout, status):
    result = checkout.run(FAKE_EXIT=str(status))
    assert result.returncode == status
    assert "error: a sentence of ours" in result.stderr
    assert "non-zero" not in result.stderr and "mpirun" not in result.stderr
    assert "Loss plot" not in result.stdout


def test_data_that_cannot_be_prepared_ends_the_run_before_it_starts(checkout):
    result = checkout.run(FAKE_PYTHON_FAILS="prepare_data.py")
    assert result.returncode == 2
    assert result.stderr.strip() == "error: no such data set"
    assert not (checkout.record / "mpzero.flags").exists()


ERRORS = [
    ({"CUDA_VERSION": "99.9"}, ["CUDA_VERSION=99.9", "cuda-99.9", "does not exist"]),
    ({"MAX_STEPS": "many"}, ["MAX_STEPS=many"]),
    ({"CHECKPOINT_DIR": "/proc/mine"}, ["CHECKPOINT_DIR=/proc/mine", "No such file or directory", "choose another"]),
    ({"CHECKPOINT_FREQ": "-1"}, ["CHECKPOINT_FREQ=-1"]),
    ({"NPROC": "0"}, ["NPROC=0"]),
    ({"LOCAL_DATASET": "yes"}, ["LOCAL_DATASET=yes", "true", "false"]),
    ({"DATASET": "/nowhere/wikitext-2", "LOCAL_DATASET": "true"}, ["/nowhere/wikitext-2", "LOCAL_DATASET"]),
    ({"DS_CONFIG": "missing.json"}, ["missing.json"]),
    ({"MODEL_TYPE": "unheard_of", "DATASET": "some/name"}, ["unheard_of", "TOKENIZER"]),
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


def test_an_installed_cuda_version_is_used(checkout, tmp_path):
    (tmp_path / "cuda-12.9/bin").mkdir(parents=True)
    result = checkout.run(CUDA_VERSION="12.9", CUDA_PARENT=str(tmp_path))
    assert result.returncode == 0, result.stderr
    environment = checkout.rank_environment()
    assert environment["CUDA_HOME"] == str(tmp_path / "cuda-12.9")
    assert environment["PATH"].startswith(f"{tmp_path}/cuda-12.9/bin:")


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def running(checkout) -> list[int]:
    path = checkout.record / "mpzero.pids"
    pids = [int(line) for line in path.read_text().split()] if path.exists() else []
    return [pid for pid in pids if is_alive(pid)]


def wait_until(condition, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def start(checkout, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        [checkout.root / "train-singlenode.sh"],
        env=checkout.environment({"NPROC": "2", **variables}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(checkout, process: subprocess.Popen) -> str:
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        for pid in running(checkout):
            os.kill(pid, signal.SIGKILL)
        process.kill()
    return output


SIGNALS = [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGUSR1, False)]


@pytest.mark.parametrize(("number", "to_group"), SIGNALS)
def test_an_interruption_ends_ranks_that_cannot_save(checkout, number, to_group):
    process = start(checkout, FAKE_SLEEP="300")
    wait_until(lambda: len(running(checkout)) == 2)
    (os.killpg if to_group else os.kill)(process.pid, number)
    output = finish(checkout, process)
    assert process.returncode == 128 + signal.SIGUSR1
    assert "Interrupted before the first checkpoint" in output
    assert running(checkout) == []


def ready(checkout) -> bool:
    return len(list(checkout.record.glob("ready.*"))) == 2


@pytest.mark.parametrize(("number", "to_group"), SIGNALS)
def test_an_interrupted_run_saves_and_says_where_it_goes_on(checkout, number, to_group):
    process = start(checkout, FAKE_SAVES="at_once")
    wait_until(lambda: ready(checkout))
    (os.killpg if to_group else os.kill)(process.pid, number)
    output = finish(checkout, process)
    assert process.returncode == 75
    assert "goes on from checkpoints/first_run/qwen3_tiny-2steps" in output
    assert "Loss plot" not in output


def test_a_second_interruption_ends_a_run_that_is_still_saving(checkout):
    process = start(checkout, FAKE_SAVES="slowly")
    wait_until(lambda: ready(checkout))
    os.killpg(process.pid, signal.SIGINT)
    assert "once more to stop at once" in next(line for line in process.stdout if "Saving" in line)
    assert len(running(checkout)) == 2
    os.killpg(process.pid, signal.SIGINT)
    output = finish(checkout, process)
    assert process.returncode == 130
    assert "Interrupted before the first checkpoint" in output
    assert running(checkout) == []


def test_a_second_start_waits_for_the_build_of_the_first(checkout):
    lock = checkout.root / "logs/setup.lock"
    lock.write_text("process 7 on node9\n")
    with open(lock, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = start(checkout)
        line = next(line for line in process.stdout if "Waiting" in line)
        assert "process 7 on node9" in line and "logs/setup.lock" in line
        assert checkout.calls() == ""
    finish(checkout, process)
    assert process.returncode == 0
    assert checkout.calls().startswith("ninja ")


def test_a_second_start_waits_for_the_data_of_the_first(checkout):
    folder = checkout.root / "data/tiny_corpus-bytes"
    folder.mkdir(parents=True)
    with open(folder / "prepare.lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = start(checkout)
        assert "prepare its data" in next(line for line in process.stdout if "Waiting" in line)
        assert checkout.prepared() == []
    finish(checkout, process)
    assert process.returncode == 0
    assert checkout.prepared() != []


def test_a_host_is_reached_through_srun_with_the_whole_node(checkout):
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\necho 96\n")
    checkout.program(
        checkout.bin / "srun", '#!/bin/bash\nprintf "%s\\n" "$@" >"$RECORD/srun"; echo "$MAX_STEPS" >>"$RECORD/srun"\n'
    )
    result = checkout.run("ip-10-1-199-129", "--", "--seed", "7", MAX_STEPS="5")
    assert result.returncode == 0, result.stderr
    words = (checkout.record / "srun").read_text().splitlines()
    assert "--nodelist=ip-10-1-199-129" in words and "--cpus-per-task=96" in words
    assert words[-5:] == [str(checkout.root / "singlenode/train-singlenode.sh"), "--", "--seed", "7", "5"]
    assert not (checkout.record / "mpzero.flags").exists()


@pytest.mark.parametrize(
    ("resources", "arguments", "asked"),
    [
        ("gpu:h100:8(S:0-1)", "", ["--gpus-per-node=8"]),
        ("(null)", "", []),
        ("gpu:8", "--partition=gpu --gres=gpu:4", ["--gres=gpu:4"]),
        ("gpu:8", "-G 4", ["-G", "4"]),
    ],
)
def test_a_host_run_asks_slurm_for_the_gpus_of_the_node(checkout, resources, arguments, asked):
    checkout.program(checkout.bin / "sinfo", f"#!/bin/bash\necho '96 {resources}'\necho '96 {resources}'\n")
    checkout.program(checkout.bin / "srun", '#!/bin/bash\nprintf "%s\\n" "$@" >"$RECORD/srun"\n')
    assert checkout.run("node1", SRUN_ARGS=arguments).returncode == 0
    words = (checkout.record / "srun").read_text().splitlines()
    assert "--cpus-per-task=96" in words
    assert [word for word in words if word.startswith(("--g", "-G")) or word == "4"] == asked


@pytest.mark.parametrize(("flags", "device"), [((), "cuda"), (("--device", "cpu"), "cpu"), (("--device=auto",), None)])
def test_gpus_that_are_there_are_used_or_the_run_ends(checkout, flags, device):
    checkout.program(checkout.bin / "nvidia-smi", GPUS)
    assert checkout.run(*flags).returncode == 0
    words = (checkout.record / "mpzero.flags").read_text().splitlines()
    assert len([word for word in words if word.startswith("--device")]) == 1
    assert device is None or words[words.index("--device") + 1] == device
    on_cpu = "2" if os.cpu_count() > 1 else "1"
    assert checkout.rank_environment()["OMPI_COMM_WORLD_SIZE"] == (on_cpu if device == "cpu" else "3")


def test_a_host_that_slurm_does_not_know_is_an_error(checkout):
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\nexit 1\n")
    checkout.program(checkout.bin / "srun", "#!/bin/bash\ntouch $RECORD/srun\n")
    result = checkout.run("nosuchhost")
    assert result.returncode == 2
    assert "nosuchhost" in result.stderr and not (checkout.record / "srun").exists()


def test_help_lists_the_variables(checkout):
    result = checkout.run("--help")
    assert result.returncode == 0
    for name in (
        "DATASET",
        "DATASET_CONFIG_NAME",
        "LOCAL_DATASET",
        "MAX_STEPS",
        "CHECKPOINT_FREQ",
        "CUDA_VERSION",
        "NPROC",
    ):
        assert f"  {name}: " in result.stdout
    assert not (checkout.record / "calls").exists()
