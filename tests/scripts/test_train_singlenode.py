"""train-singlenode.sh with stand-ins for mpzero, the Python programs and the build tools; mpirun is the real one."""

import os
import re
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")


TEXTS = """
Sample completion of "The prince looked at" before training:
  | The prince looked at %
  | $(touch hit)
and after training:
  | The prince looked at her.

Next, complete a prompt:
  build/bin/mpzero generate checkpoints/first_run --prompt "The prince looked at"
"""


def test_the_first_run_without_a_gpu(checkout, tmp_path):
    """From any folder and through a link: two ranks train the small model on the shipped text."""
    link = tmp_path / "bin" / "start"
    link.symlink_to(checkout.root / "train-singlenode.sh")
    words, folder = [str(link)], checkout.root / "checkpoints/first_run"
    result = subprocess.run(words, cwd="/", env=checkout.environment({}), capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    flags = checkout.flags()
    expected = {"model_type": "qwen3_tiny", "seq_length": "256", "max_steps": "600"}
    expected["deepspeed_config"] = "configs/ds_config_tiny.json"
    expected["train_data"] = "data/tiny_corpus-bytes/train.h5"
    expected["validation_data"] = "data/tiny_corpus-bytes/validation.h5"
    assert {name: flags[name] for name in expected} == expected and "device" not in flags
    assert checkout.rank_environment()["OMPI_COMM_WORLD_SIZE"] == ("2" if os.cpu_count() > 1 else "1")
    prepared = checkout.prepared()
    assert str(checkout.root / "assets/tiny_corpus/train.txt") in prepared
    assert prepared[prepared.index("--tokenizer") + 1] == "bytes"
    # Nothing is installed or configured anew.
    assert checkout.calls().startswith("ninja ") and "cmake" not in checkout.calls() and "uv" not in checkout.calls()
    # What the user sees, and what the log keeps.
    for name in ("loss.png", "metrics.jsonl", "qwen3_tiny-3steps"):
        assert f"checkpoints/first_run/{name}" in result.stdout and (folder / name).exists()
    assert f"{checkout.root}/build/bin/zero_to_fp32 {folder} " in result.stdout
    (log,) = (checkout.root / "logs").glob("*.out")
    line = "Batch 10 Loss: 2.12345, Speed: 3.10 samples/sec, lr: 0.000050\n"
    assert line in log.read_text() and line in result.stdout
    assert "a warning\n" in result.stderr and log.read_text().count("a warning\n") == 1
    assert "\r" not in log.read_text()


def test_it_shows_the_models_text_before_training_and_after(checkout):
    result = checkout.run()
    assert TEXTS in result.stdout and "tokens" not in result.stderr, result.stdout
    words = "generate checkpoints/first_run --prompt The prince looked at --max_tokens 200 --device cpu"
    assert (checkout.record / "generate").read_text().splitlines() == [words, f"{words} --untrained"]


def test_a_text_that_cannot_be_made_ends_nothing(checkout):
    result = checkout.run(FAKE_GENERATE_FAILS="untrained")
    assert result.returncode == 0
    assert 'Sample completion of "The prince looked at":\n  | The prince looked at her.\n' in result.stdout
    result = checkout.run(FAKE_GENERATE_FAILS="device")
    assert result.returncode == 0
    assert "Sample completion" not in result.stdout and "build/bin/zero_to_fp32 checkpoints/first_run " in result.stdout
    assert "the sample completion" in result.stdout + result.stderr


def test_a_model_with_another_tokenizer_is_shown_no_text_but_the_command(checkout):
    result = checkout.run(MODEL_TYPE="qwen3_0_6b", TOKENIZER="Qwen/Qwen3-0.6B")
    assert result.returncode == 0, result.stderr
    assert not (checkout.record / "generate").exists()
    assert '  .venv/bin/python app/generate.py checkpoints --prompt "The prince looked at"\n' in result.stdout


def test_an_environment_without_gpu_libraries_gets_the_command_that_adds_them(checkout):
    """Tried in such an environment: uv sync --frozen --inexact adds what MPZERO_GPU_WHEELS leaves out."""
    assert "--inexact" not in checkout.run().stdout
    stamp = checkout.root / ".venv/mpzero-synced"
    stamp.write_text(stamp.read_text().replace(" cuda", " cpu"))
    result = checkout.run(MPZERO_GPU_ARCHITECTURES="none")
    assert result.returncode == 0 and f"(cd {checkout.root} && " in result.stdout
    assert "uv sync --frozen --inexact && " in result.stdout and "pip install transformers)" in result.stdout
    (checkout.root / ".venv/lib/python3.11/site-packages/transformers").mkdir(parents=True)
    assert "--inexact" not in checkout.run(MPZERO_GPU_ARCHITECTURES="none").stdout


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


@pytest.mark.parametrize("status", [1, 2])
def test_the_exit_status_is_mpzeros_and_its_sentence_is_not_buried(checkout, status):
    result = checkout.run(FAKE_EXIT=str(status))
    assert result.returncode == status
    assert "error: a sentence of ours" in result.stderr
    assert "non-zero" not in result.stderr and "mpirun" not in result.stderr
    assert "Loss plot" not in result.stdout


@pytest.mark.parametrize("command", ["version", "plan"])
def test_a_command_of_mpzero_is_no_host(checkout, command):
    result = checkout.run(command)
    assert result.returncode == 2 and f"build/bin/mpzero {command}" in result.stderr


@pytest.mark.parametrize(("given", "used"), [({}, "^tcp"), ({"OMPI_MCA_btl": "self,tcp"}, "self,tcp")])
def test_ranks_of_one_machine_use_no_network(checkout, given, used):
    assert checkout.run(**given).returncode == 0
    ranks = checkout.rank_environment()
    assert ranks["OMPI_MCA_btl"] == used
    # mpzero blames no variable that the script has set for an MPI that does not start.
    assert ("OMPI_MCA_btl" in ranks.get("MPZERO_MPI_DEFAULTS", "").split()) == (not given)


@pytest.mark.parametrize("script", ["singlenode/train-singlenode.sh", "sbatch/train.sbatch"])
def test_help_lists_the_variables(checkout, script):
    result = subprocess.run(
        ["bash", str(checkout.root / script), "--help"], env=checkout.environment({}), capture_output=True, text=True
    )
    assert result.returncode == 0
    settings = set(
        re.findall(r"^ +setting ([A-Z_]+) ", (checkout.root / "scripts/training.sh").read_text(), re.MULTILINE)
    )
    assert len(settings) > 10
    listed = set(re.findall(r"^  ([A-Z_]+): ", result.stdout, re.MULTILINE))
    assert settings | {"MODEL_CONFIG", "MAX_DOCUMENTS", "CUDA_VERSION", "NPROC"} <= listed
    assert not (checkout.record / "calls").exists()


def test_a_failed_run_reports_its_log(checkout):
    checkout.program(checkout.bin / "mpirun", "#!/bin/bash\nexit 1\n")
    result = checkout.run("--train_data=mine.h5")
    (log,) = (checkout.root / "logs").glob("*.out")
    assert result.returncode == 1 and result.stdout.splitlines()[-1].endswith(f" {log.relative_to(checkout.root)}.")


def test_a_sample_is_wrapped_between_words_at_the_terminals_width(checkout):
    inside = 'stty cols 28; quoted_text "$TEXT"'
    command = f"export -f quoted_text positive_number_or; script --quiet --return --command '{inside}' /dev/null"
    text = "\ufffdaaaa bbbb cccc dddd eeee\n" + 30 * "f"
    result = checkout.shell(command, TEXT=text, SHELL="/bin/bash", TERM="xterm", LC_ALL="C.UTF-8")
    expected = ["  | \ufffdaaaa bbbb cccc dddd", "  | eeee", "  | " + 24 * "f", "  | " + 6 * "f"]
    assert result.stdout.splitlines() == expected
    # A file keeps the lines.
    assert checkout.shell('quoted_text "$TEXT"', TEXT=text).stdout.splitlines() == [
        f"  | {line}" for line in text.split("\n")
    ]


NINJA = """#!/bin/bash
echo "ninja: Entering directory 'build'"
for i in {1..40}; do echo "[$i/40] Building CXX object $i.o"; done
echo "FAILED: 40.o"
exit 1
"""


def test_a_build_without_a_terminal_shows_its_progress_and_errors(checkout):
    checkout.program(checkout.root / ".venv/bin/ninja", NINJA)
    command = 'run_long() { "$@"; }; PATH=.venv/bin:$PATH; build_quietly mpzero || echo "status $?"'
    lines = checkout.shell(command).stdout.splitlines()
    assert [line for line in lines if "%" in line] == [f"mpzero: Building: {tenth}0%" for tenth in range(1, 11)]
    assert lines[-2:] == ["FAILED: 40.o", "status 1"] and not any(line.startswith("[") for line in lines)


SRUN = """#!/bin/bash
printf '%s\\n' "$@" >"$RECORD/srun"
"""


def srun(checkout, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    checkout.program(checkout.bin / "srun", SRUN)
    checkout.program(checkout.bin / "sinfo", "#!/bin/bash\n[[ $* != *node1* ]] || echo 2 '(null)'\n")
    checkout.program(checkout.bin / "scontrol", "#!/bin/bash\n")
    return checkout.run(*arguments, **variables)


def started_on_host(checkout) -> list[str]:
    """The arguments of the script on the node."""
    words = (checkout.record / "srun").read_text().splitlines()
    return words[words.index(str(checkout.root / "singlenode/train-singlenode.sh")) + 1 :]


@pytest.mark.parametrize("arguments", [("node1", "--build-only"), ("--build-only", "node1")])
def test_a_host_that_is_to_build_does_not_train(checkout, arguments):
    result = srun(checkout, *arguments)
    assert result.returncode == 0, result.stderr
    assert started_on_host(checkout) == ["--build-only"]


def test_options_of_srun_are_read_as_words(checkout):
    assert srun(checkout, "node1", SRUN_ARGS="--comment 'a b' --partition=gpu").returncode == 0
    words = (checkout.record / "srun").read_text().splitlines()
    assert words[words.index("--comment") + 1] == "a b" and "--partition=gpu" in words


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--build-only", "--", "--seed", "3"), "'--seed 3' has no effect with --build-only"),
        (("--build-only", "--seed", "3"), "'--seed 3' has no effect with --build-only"),
        (("node1", "--build-only", "--seed", "3"), "has no effect with --build-only"),
        (("--seed", "3", "--build-only"), "--build-only is a flag of this script; pass it before"),
        (("--", "--seed", "3", "--build-only"), "--build-only is a flag of this script"),
        (("node1", "node2"), "'node1' and 'node2' both look like Slurm nodes"),
        (("configs",), "'configs' is a file or folder, not a Slurm node; set DATASET=configs"),
    ],
)
def test_what_the_script_would_drop_is_refused(checkout, arguments, sentence):
    result = srun(checkout, *arguments)
    assert result.returncode == 2, result.stdout
    assert sentence in result.stderr and result.stderr.count("\n") == 1
    assert not (checkout.record / "srun").exists() and checkout.calls() == ""


def test_help_is_given_wherever_it_is_asked_for(checkout):
    said = srun(checkout, "--help").stdout
    assert said != "" and srun(checkout, "node1", "--help").stdout == said
    for arguments in (["--", "-h"], ["--max_steps", "5", "--help", "lr"]):
        result = checkout.run(*arguments)
        assert (result.returncode, result.stdout) == (0, said) and checkout.calls() == ""


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"MODEL_CONFIG": "config.json"}, "checkout-"),
        ({"MODEL_CONFIG": "weights/../config.json"}, "checkout-"),
        ({"MODEL_CONFIG": "a b/c/config.json"}, "c-"),
        ({"MODEL_CONFIG": "a b/.d/config.json"}, "d-"),
    ],
)
def test_the_log_is_no_hidden_file(checkout, variables, name):
    for folder in ("", "weights", "a b/c", "a b/.d"):
        (checkout.root / folder).mkdir(parents=True, exist_ok=True)
        (checkout.root / folder / "config.json").write_text("{}")
    assert checkout.run(**variables).returncode == 0
    (log,) = [path.name for path in (checkout.root / "logs").iterdir() if path.suffix == ".out"]
    assert log.startswith(name)


def test_a_run_that_mpzero_refuses_leaves_no_new_folder(checkout):
    result = checkout.run(FAKE_EXIT="2")
    assert result.returncode == 2
    assert not (checkout.root / "checkpoints").exists()
    (checkout.root / "checkpoints").mkdir()
    assert checkout.run(FAKE_EXIT="2").returncode == 2
    assert list((checkout.root / "checkpoints").iterdir()) == []
