"""SINK: the scripts start app/follow.py for the time of the run. What becomes of it does not touch the run."""

import shutil
import subprocess
import sys

import pytest

from .conftest import REPOSITORY
from .test_dry_run import start, submit

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")

# app/follow.py is a piece of bash; the other programs do nothing.
PYTHON = """#!/bin/bash
[[ $(basename "$1") != requeue ]] || exec python3 "$@"
printf '%s\\n' "$@" >>"$RECORD/$(basename "$1").arguments"
[[ $(basename "$1") == follow.py && " $* " != *" --check "* ]] || exit 0
FOLLOW
"""
# Until SIGUSR2; the ranks have written by then.
FOLLOWS = """
exec python3 - "$RECORD/follower" "$2" <<'END'
import signal, sys
ends = []
signal.signal(signal.SIGUSR2, lambda *_: ends.append(True))
if LATE:
    ends.clear()
while not ends or LATE:
    signal.sigtimedwait([], 0.05)
print(open(sys.argv[2]).read(), file=open(sys.argv[1], "w"), end="")
END
"""


def followed_by(checkout, text: str) -> None:
    checkout.program(checkout.root / ".venv/bin/python", PYTHON.replace("FOLLOW", text))


def follower(checkout) -> str:
    path = checkout.record / "follower"
    return path.read_text() if path.exists() else ""


def arguments(checkout) -> list[str]:
    return (checkout.record / "follow.py.arguments").read_text().splitlines()


@pytest.mark.parametrize("begin", [start, submit])
def test_it_follows_the_run_and_ends_after_a_last_pass(checkout, begin):
    followed_by(checkout, FOLLOWS.replace("LATE", "False"))
    result = begin(checkout, SINK="tensorboard", SINK_ARGS="--project 'my llama'", CHECK_NODES="false")
    assert result.returncode == 0, result.stdout + result.stderr
    assert follower(checkout) == '{"step": 1}\n'
    words = arguments(checkout)
    assert words[2:7] == ["--sink", "tensorboard", "--project", "my llama", "--check"]
    assert words[9:14] == ["--sink", "tensorboard", "--project", "my llama", "--wait"] and words[14] == "--pid"
    assert "app/follow.py exited" not in result.stdout + result.stderr


def test_paths_in_its_arguments_count_from_where_the_user_is(checkout, tmp_path):
    followed_by(checkout, 'pwd >"$RECORD/follower"')
    user = tmp_path / "the user's"
    user.mkdir()
    result = start(checkout, SINK="tensorboard", SINK_ARGS="--logdir runs", MPZERO_USER_FOLDER=str(user))
    assert follower(checkout) == f"{user}\n", result.stdout + result.stderr


@pytest.mark.parametrize("begin", [start, submit])
@pytest.mark.parametrize(("end", "status"), [("exit 3", 3), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)])
def test_its_crash_is_one_line_and_the_run_is_not_affected(checkout, begin, end, status):
    followed_by(checkout, end)
    result = begin(checkout, SINK="tensorboard", CHECK_NODES="false", CHECKPOINT_DIR="my run")
    assert result.returncode == 0, result.stdout + result.stderr
    said = [line for line in (result.stdout + result.stderr).splitlines() if "follow" in line]
    assert said == [
        f"mpzero: warning: SINK=tensorboard: app/follow.py exited with status {status}; the run is not affected. "
        "To forward the remaining steps later, run "
        "'.venv/bin/python app/follow.py 'my run/metrics.jsonl' --sink tensorboard --once'."
    ]
    if begin is start:
        (log,) = (checkout.root / "logs").glob("*.out")
        assert said[0] in log.read_text()


def test_a_follower_that_hangs_is_ended(checkout):
    followed_by(checkout, FOLLOWS.replace("LATE", "True"))
    follow = "METRICS_FILE=m SINK=tensorboard; require_sink; start_follower; stop_follower 1; wait"
    follow += '; echo "$MPZERO_FOLLOWER."'
    result = checkout.shell(follow)
    assert result.stdout == ".\n"
    first, second = result.stderr.splitlines()
    assert first.endswith("app/follow.py was still forwarding steps 1 second after the run ended; stopping it.")
    assert "app/follow.py exited with status 137" in second


@pytest.mark.parametrize("begin", [start, submit])
def test_without_a_sink_nothing_follows(checkout, begin):
    assert begin(checkout, CHECK_NODES="false").returncode == 0
    assert not (checkout.record / "follow.py.arguments").exists()


def refused(checkout, begin, **variables) -> str:
    result = begin(checkout, **variables)
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("mpzero: error: ")
    # Before any long work.
    assert checkout.prepared() == [] and "ninja" not in checkout.calls()
    assert not (checkout.record / "mpzero.flags").exists()
    return result.stderr


@pytest.mark.parametrize("begin", [start, submit])
def test_an_unknown_sink_is_refused(checkout, begin):
    assert "SINK=tensorbord must be one of tensorboard, wandb, mlflow, trainjob" in refused(
        checkout, begin, SINK="tensorbord"
    )


@pytest.mark.parametrize("begin", [start, submit])
def test_a_package_that_is_missing_is_refused_before_any_work(checkout, tmp_path, begin):
    sink = "mlflow"
    shutil.copytree(
        REPOSITORY / "app", checkout.root / "app", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.cpp", "*.hpp")
    )
    checkout.program(checkout.root / ".venv/bin/python", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    (tmp_path / "none" / sink).mkdir(parents=True)
    (tmp_path / "none" / sink / "__init__.py").write_text("raise ImportError\n")
    said = refused(checkout, begin, SINK=sink, PYTHONPATH=str(tmp_path / "none"))
    assert said.startswith(f"mpzero: error: SINK={sink}: {sink} is not installed: ") and " install " in said
    said = refused(checkout, begin, SINK=sink, SINK_ARGS="--projekt llama")
    assert "SINK_ARGS: --projekt" in said and "--project?" in said
    assert "SINK_ARGS=--project 'llama has an unclosed quote" in refused(
        checkout, begin, SINK=sink, SINK_ARGS="--project 'llama"
    )


def test_arguments_without_a_sink_are_answered(checkout):
    assert "SINK_ARGS=--project x has no effect: SINK is not set" in start(checkout, SINK_ARGS="--project x").stderr


def test_the_words_of_a_variable_are_those_of_a_shell_and_nothing_runs(checkout):
    command = "read_words TEXT; printf '<%s>' \"${MPZERO_WORDS[@]}\""
    for text, words in (
        ("a  b\tc", "<a><b><c>"),
        ("--files '*.csv' \"a 'b'\" c\\ d", "<--files><*.csv><a 'b'><c d>"),
        ("$(touch ran) `touch ran` ; touch ran", "<$(touch><ran)><`touch><ran`><;><touch><ran>"),
        ("''", "<>"),
        ("-n --version", "<-n><--version>"),
    ):
        assert checkout.shell(command, TEXT=text).stdout == words
    assert checkout.shell("read_words TEXT; echo ${#MPZERO_WORDS[@]}", TEXT=" ").stdout == "0\n"
    assert not (checkout.root / "ran").exists()


def test_quoted_words_are_read_as_they_were(checkout):
    words = ["a b", "it's", "", "$(x)", '"', "\\", "--files", "*.csv", "ünï"]
    command = """
    TEXT=$(quoted_words "$@"); read_words TEXT
    printf '%s\\n' "${MPZERO_WORDS[@]}"; eval "set -- $TEXT"; printf '%s\\n' "$@" """
    result = subprocess.run(
        ["bash", "-c", f"set -euo pipefail; source scripts/common.sh; {command}", "bash", *words],
        cwd=checkout.root,
        env=checkout.environment({"MPZERO_ROOT": str(checkout.root)}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.splitlines() == words + words, result.stderr
