"""Flags of the Python programs."""

import subprocess
import sys
from pathlib import Path

import pytest

APP = Path(__file__).resolve().parents[2] / "app"


@pytest.mark.parametrize(
    ("program", "flag"),
    [
        ("prepare_data.py", "--text_colum"), ("generate.py", "--promp"), ("report.py", "--pn"), ("top.py", "--interva"),
        ("follow.py", "--sin"), ("failure.py", "--statu"),
    ],
)  # fmt: skip
def test_an_abbreviated_flag_is_unknown(program, flag):
    shown = subprocess.run([sys.executable, APP / program, "--help"], capture_output=True, text=True)
    assert f"{flag}" in shown.stdout and f"{flag} " not in shown.stdout
    result = subprocess.run([sys.executable, APP / program, flag, "1", "x", "y"], capture_output=True, text=True)
    assert result.returncode == 2 and flag in result.stderr and "Traceback" not in result.stderr, result.stderr
