"""What tests/conftest.py does for a whole session: the build folder stays as it was, and no signal is ignored."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

TESTS = """
import os, pathlib
BUILD = pathlib.Path(os.environ["BUILD_DIR"])
def test_that_passes(): pass
def test_that_builds(): {}
"""


@pytest.mark.parametrize(
    ("action", "changed", "workers"),
    [
        ("(BUILD / 'bin/mpzero').write_text('other')", "bin/mpzero", []),
        ("os.utime(BUILD / 'bin/mpzero')", "bin/mpzero", ["-n", "2"]),
        ("(BUILD / 'bin/mpzero').unlink()", "bin/mpzero", ["-n", "2"]),
        ("(BUILD / 'new.o').touch()", "new.o", []),
        ("(BUILD / 'Testing/log').touch()", None, []),
        ("(BUILD / 'install_manifest.txt').touch()", None, ["-n", "2"]),
    ],
)
def test_a_changed_build_folder_is_one_failure(tmp_path: Path, action: str, changed: str | None, workers: list[str]):
    shutil.copy(REPOSITORY / "tests/conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS.format(action))
    build = tmp_path / "build"
    for folder in ("bin", "Testing"):
        (build / folder).mkdir(parents=True)
    (build / "bin/mpzero").write_text("a program")
    os.utime(build / "bin/mpzero", (0, 0))
    words = [sys.executable, "-m", "pytest", f"--rootdir={tmp_path}", f"--junitxml={build}/pytest.xml", *workers]
    environment = {**os.environ, "BUILD_DIR": str(build)}
    result = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    counting = [sys.executable, REPOSITORY / "scripts/count_tests.py", build / "pytest.xml"]
    counted = subprocess.run(counting, check=True, capture_output=True, text=True).stdout.split()
    failed = [] if changed is None else ["the_build_folder_is_unchanged"]
    assert counted == ["2", str(len(failed)), "0", *failed], result.stdout
    assert result.returncode == len(failed)
    assert changed is None or str(build / changed) in result.stdout


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_signals_that_were_ignored_at_the_start_are_not_ignored_in_children(tmp_path: Path, workers: list[str]):
    """nohup ignores SIGHUP, and a shell without job control SIGINT in what it starts in the background."""
    shutil.copy(REPOSITORY / "tests/conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(
        "import signal, subprocess\n"
        "def test_that_interrupts():\n"
        "    for name in ('INT', 'HUP'):\n"
        "        process = subprocess.run(['bash', '-c', f'kill -{name} $$; echo survived'], capture_output=True)\n"
        "        assert process.returncode == -getattr(signal, f'SIG{name}')\n"
    )
    words = [sys.executable, "-m", "pytest", f"--rootdir={tmp_path}", *workers]
    ignoring = ["bash", "-c", "trap '' INT HUP; exec \"$@\"", "bash", *words]
    environment = {**os.environ, "BUILD_DIR": str(tmp_path / "build")}
    result = subprocess.run(ignoring, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
