"""The last line of test.sh: a test that did not run counts as skipped or failed, never as passed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CTEST = shutil.which("ctest", path=str(REPOSITORY / ".venv/bin")) or shutil.which("ctest")

# One entry as tests/CMakeLists.txt makes them, for each way in which a test can end.
ENTRIES = {
    "passes": ("sh", "-c", "exit 0"),
    "fails": ("sh", "-c", "exit 1"),
    "skips": ("sh", "-c", "echo skipped: no GPU; exit 77"),
    "crashes": ("sh", "-c", "kill -SEGV $$"),
    "is_not_built": ("/nowhere/program",),
    "overdue": ("sleep", "30"),
}


def count(path: Path) -> list[str]:
    words = [sys.executable, REPOSITORY / "scripts/count_tests.py", path]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()


def run_ctest(folder: Path, names: list[str]) -> tuple[int, list[str]]:
    """ctest's exit status for these entries, and what is counted of them."""
    lines = []
    for name in names:
        command = " ".join(f'"{word}"' for word in ENTRIES[name])
        lines.append(f"add_test({name} {command})")
        lines.append(f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 2)")
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines))
    words = [CTEST, "--test-dir", folder, "--output-junit", folder / "ctest.xml"]
    result = subprocess.run(words, check=False, capture_output=True, text=True)
    return result.returncode, count(folder / "ctest.xml")


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("passes", ["1", "0", "0"]),
        ("fails", ["0", "1", "0", "fails"]),
        ("skips", ["0", "0", "1"]),
        ("crashes", ["0", "1", "0", "crashes"]),
        ("is_not_built", ["0", "1", "0", "is_not_built"]),
        ("overdue", ["0", "1", "0", "overdue"]),
    ],
)
def test_an_entry_of_ctest(tmp_path: Path, name: str, counted: list[str]) -> None:
    status, numbers = run_ctest(tmp_path, [name])
    assert numbers == counted
    assert (status != 0) == (counted[1] == "1")


def test_entries_of_ctest_add_up(tmp_path: Path) -> None:
    assert run_ctest(tmp_path, ["passes", "skips", "fails"])[1] == ["1", "1", "1", "fails"]


def test_outcomes_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(
        "import pytest\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert False\n"
        "def test_skips(): pytest.skip('no GPU')\n"
        "@pytest.mark.skipif(True, reason='no GPU')\n"
        "def test_is_marked(): pass\n"
        "@pytest.fixture\n"
        "def broken(): raise RuntimeError\n"
        "def test_has_no_fixture(broken): pass\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", tmp_path, tmp_path]
    subprocess.run([*words, "--junitxml", tmp_path / "all.xml"], check=False, capture_output=True)
    assert count(tmp_path / "all.xml") == ["1", "2", "2", "test_fails", "test_has_no_fixture"]
