"""A checkout that was copied or moved: its build folder and its .venv name the folder that they were made in."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CMAKE = REPOSITORY / ".venv/bin"

PRESETS = """{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "build",
"cacheVariables": {"CMAKE_BUILD_TYPE": "Release"}}]}"""
PROJECT = """cmake_minimum_required(VERSION 3.28)
project(words LANGUAGES C)
add_executable(mpzero main.c)
set_target_properties(mpzero PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
"""


def program(words: str) -> str:
    return f'#include <stdio.h>\nint main(void) {{ return puts("{words}") < 0; }}\n'


@pytest.fixture
def original(checkout):
    """A checkout of another program, which the real CMake and Ninja have built."""
    for name, text in {"CMakePresets.json": PRESETS, "CMakeLists.txt": PROJECT, "main.c": program("the first")}.items():
        (checkout.root / name).write_text(text)
    shutil.rmtree(checkout.root / "build")
    for name in ("cmake", "ninja"):
        (checkout.root / ".venv/bin" / name).unlink()
        (checkout.root / ".venv/bin" / name).symlink_to(CMAKE / name)
    built = build(checkout, checkout.root)
    assert built.returncode == 0 and "Configuring" in built.stdout, built.stdout + built.stderr
    assert words_of(checkout.root) == "the first"
    return checkout


def build(checkout, root: Path) -> subprocess.CompletedProcess:
    parts = "common paths install build"
    text = f'set -euo pipefail; for part in {parts}; do source scripts/$part.sh; done; run_long() {{ "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", text + "build_programs off 0 mpzero"],
        cwd=root,
        env=checkout.environment({"MPZERO_ROOT": str(root), "MPZERO_USER_FOLDER": str(root)}),
        capture_output=True,
        text=True,
        timeout=120,
    )


def words_of(root: Path) -> str:
    return subprocess.run([root / "build/bin/mpzero"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("how", ["copied", "moved", "copied, and the original is gone"])
def test_a_checkout_that_is_elsewhere_builds_its_own_sources(original, tmp_path, how):
    copy = tmp_path / "copy"
    (shutil.move if how == "moved" else shutil.copytree)(
        original.root, copy, **({} if how == "moved" else {"symlinks": True})
    )
    if "gone" in how:
        shutil.rmtree(original.root)
    (copy / "main.c").write_text(program("the second"))
    result = build(original, copy)
    assert result.returncode == 0, result.stdout + result.stderr
    assert words_of(copy) == "the second"
    said = [line for line in result.stdout.splitlines() if line.startswith("mpzero: ")]
    assert said[0] == f"mpzero: {copy}/build was copied or moved from {original.root}/build: rebuilding it."
    # Another time there is nothing to say, or to do.
    again = build(original, copy)
    assert (again.returncode, again.stdout) == (0, ""), again.stdout + again.stderr
    if how == "copied":
        assert words_of(original.root) == "the first"


def test_a_checkout_that_stays_configures_nothing(original):
    result = build(original, original.root)
    assert (result.returncode, result.stdout) == (0, ""), result.stdout + result.stderr


def test_another_checkouts_build_folder_is_named(original, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(original.root, copy, symlinks=True, ignore=shutil.ignore_patterns("build"))
    (copy / "build").symlink_to(original.root / "build")
    result = build(original, copy)
    assert result.returncode == 0, result.stderr
    assert f"{copy}/build belongs to the checkout {original.root}: building that checkout's sources." in result.stdout


def test_a_job_of_a_moved_checkout_says_what_builds_it(checkout):
    (checkout.root / "build/CMakeCache.txt").write_text("CMAKE_CACHEFILE_DIR:INTERNAL=/no/such/checkout/build\n")
    result = checkout.shell("require_programs")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert "was copied or moved from /no/such/checkout/build" in result.stderr
    assert "./train-singlenode.sh --build-only" in result.stderr


SHORT = "#!{venv}/bin/python\nimport sys\nprint(sys.argv[1:])\n"
# As uv writes it where the path has a space, or is long.
LONG = "#!/bin/sh\n'''exec' '{venv}/bin/python' \"$0\" \"$@\"\n' '''\nimport sys\nprint(sys.argv[1:])\n"


@pytest.mark.parametrize("folder", ["venv", "a b"])
@pytest.mark.parametrize("script", [SHORT, LONG], ids=["short", "long"])
def test_the_programs_of_a_moved_environment_run_its_own_python(checkout, script, folder):
    root = checkout.root.parent / folder / "checkout"
    root.parent.mkdir()
    shutil.copytree(checkout.root, root, symlinks=True)
    binaries = root / ".venv/bin"
    gone = "/no/such/checkout/.venv"
    (binaries / "activate").write_text(f"VIRTUAL_ENV='{gone}'\nexport VIRTUAL_ENV\n")
    for name in ("cmake", "hf"):
        checkout.program(binaries / name, script.format(venv=gone))
    checkout.program(binaries / "ninja", "\x7fELF a program\n")
    checkout.program(binaries / "python", f'#!/bin/bash\nexec {os.path.realpath("/usr/bin/python3")} "$@"\n')
    prelude = (
        'for part in common paths install build; do source "$MPZERO_ROOT/scripts/$part.sh"; done; sync_environment cuda'
    )
    for said in (1, 0):
        environment = checkout.environment({"MPZERO_ROOT": str(root), "MPZERO_USER_FOLDER": str(root)})
        result = subprocess.run(["bash", "-c", prelude], env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert result.stdout.count(f"copied or moved from {gone}") == said, result.stdout
    for name in ("cmake", "hf"):
        ran = subprocess.run([binaries / name, "x y"], capture_output=True, text=True)
        assert (ran.returncode, ran.stdout) == (0, "['x y']\n"), ran.stderr
    assert (binaries / "ninja").read_text() == "\x7fELF a program\n"
    activated = subprocess.run(
        ["bash", "-c", 'source "$0"; echo "$VIRTUAL_ENV"', binaries / "activate"], capture_output=True, text=True
    )
    assert activated.stdout.strip() == str(root / ".venv")


def test_an_environment_that_is_linked_stays_as_it_is(checkout):
    """It may be a copy itself; this checkout has no say in it."""
    shared = checkout.root.parent / "shared"
    shutil.move(checkout.root / ".venv", shared)
    (checkout.root / ".venv").symlink_to(shared)
    (shared / "bin/activate").write_text("VIRTUAL_ENV='/no/such/checkout/.venv'\n")
    checkout.program(shared / "bin/hf", SHORT.format(venv="/no/such/checkout/.venv"))
    result = checkout.shell("sync_environment cuda")
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert (shared / "bin/hf").read_text() == SHORT.format(venv="/no/such/checkout/.venv")
