"""The flags in the help of the program."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from trainer import BUILD

pytestmark = pytest.mark.e2e


def say(*words: str) -> str:
    return subprocess.run([BUILD / "bin" / "mpzero", *words], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_printed_wherever_it_is_asked_for(flag: str) -> None:
    assert "--seq_length TOKENS" in say("train", flag)
    assert say("train", "--max_steps", "3", flag) == say("train", flag)


def test_help_explains_one_flag() -> None:
    for words in (["help", "train", "lr"], ["train", "--help", "--lr"], ["help", "plan", "lr"], ["help", "lr"]):
        assert say(*words) == say("train", "--help", "learning_rate")
    assert say("help", "plan", "instance") == say("plan", "--help", "instance") != say("plan", "--help")
    assert say("train", "--help", "--max_steps", "3") == say("train", "--help")


@pytest.mark.parametrize("command", ["train", "plan", "doctor", "checkpoint", "generate", ""])
def test_help_fits_a_terminal_of_80_columns(command: str) -> None:
    assert [line for line in say(*command.split(), "--help").splitlines() if len(line) > 80] == []


def test_help_for_programs_names_the_same_flags() -> None:
    flags = [flag for group in json.loads(say("train", "--help=json"))["groups"] for flag in group["flags"]]
    text = say("train", "--help")
    for flag in flags:
        assert f"  --{flag['name']} {flag['takes']}" in text


def test_versions_are_printed_without_ranks() -> None:
    lines = say("--version").splitlines()
    assert re.fullmatch(r"mpzero \d+\.\d+\.\d+ \(commit [0-9a-f]{10}\+?\)|mpzero .* \(commit unknown\)", lines[0])
    assert re.fullmatch(r"torch \d+\.\d+\.\d+\S*, CUDA \d+\.\d+, NCCL (\d+\.\d+\.\d+|none), Open MPI v\S+", lines[1])
    assert lines[2].startswith("GPU kernels: ")
