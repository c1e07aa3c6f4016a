"""cmake --install makes a tree that can be moved and that trains without the checkout's sources and build folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from trainer import BUILD, REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tests/docs"))

from documents import links

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """An installed tree that was moved after `cmake --install`."""
    made = tmp_path_factory.mktemp("installed") / "made"
    cmake = REPOSITORY / ".venv/bin/cmake"
    subprocess.run([cmake, "--install", BUILD, "--prefix", made], check=True, capture_output=True, text=True)
    return made.rename(made.parent / "moved")


def run(tree: Path, *arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess:
    # No variable of the build folder, and no library path, may help.
    kept = {name: value for name, value in os.environ.items() if name not in ("BUILD_DIR", "LD_LIBRARY_PATH")}
    return subprocess.run(
        [str(tree / "train-singlenode.sh"), *arguments],
        cwd=cwd,
        env={**kept, "NPROC": "1", "MAX_STEPS": "2", "SEQ_LENGTH": "64", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("prefix", [[], ["--prefix", "/usr/local"], ["--prefix", "/usr/"]])
def test_nothing_is_scattered_over_the_systems_folders(prefix, tmp_path):
    # DESTDIR keeps what this test is to find out of the machine's /usr/local.
    command = [REPOSITORY / ".venv/bin/cmake", "--install", BUILD, *prefix]
    environment = {**os.environ, "DESTDIR": str(tmp_path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode != 0
    assert "--prefix /opt/mpzero" in " ".join(result.stderr.split())  # CMake wraps lines
    assert list(tmp_path.iterdir()) == []


def test_an_install_without_a_build_is_refused_with_the_command_that_builds(tmp_path):
    rules = (BUILD / "cmake_install.cmake").read_text().replace(f"{BUILD}/bin/", f"{tmp_path}/bin/")
    (tmp_path / "install.cmake").write_text(rules)
    command = [
        REPOSITORY / ".venv/bin/cmake",
        f"-DCMAKE_INSTALL_PREFIX={tmp_path}/to",
        "-P",
        tmp_path / "install.cmake",
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0 and "./train-singlenode.sh --build-only" in " ".join(result.stderr.split())
    assert not (tmp_path / "to").exists()


def test_the_python_of_the_installed_programs_is_printed(tmp_path):
    command = [REPOSITORY / ".venv/bin/cmake", "--install", BUILD, "--prefix", tmp_path / "to"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    python, program = result.stdout.splitlines()[-1].split()[-2:]
    assert subprocess.run([python, program, "--help"], capture_output=True).returncode == 0


def test_an_installed_tree_trains_after_it_was_moved(tree, tmp_path):
    result = run(tree, "--", "--device", "cpu", "--validation_freq", "0", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Configuring" not in result.stdout and "Installing" not in result.stdout
    folder = tree / "checkpoints/first_run"
    assert (folder / "latest").read_text().strip() == "qwen3_tiny-2steps"
    # The user is in another folder.
    assert f"{tree / 'bin/zero_to_fp32'} {folder} {folder / 'fp32'}" in result.stdout
    assert f'{tree / "bin/mpzero"} generate {folder} --prompt "The prince looked at"' in result.stdout
    text = subprocess.run(
        [sys.executable, tree / "app/generate.py", folder, "--prompt=The", "--max_tokens=5", "--device=cpu"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert text.returncode == 0 and text.stdout.startswith("The"), text.stderr
    command = [str(tree / "bin/zero_to_fp32"), str(folder), str(tmp_path / "fp32")]
    subprocess.run(command, check=True, capture_output=True, text=True)
    assert list((tmp_path / "fp32").glob("*.safetensors"))


def test_its_own_environment_is_found_from_the_programs_place(tree):
    (tree / ".venv").symlink_to(REPOSITORY / ".venv")
    try:
        listed = subprocess.run(["ldd", tree / "bin/mpzero"], check=True, capture_output=True, text=True).stdout
        found = [line.split()[2] for line in listed.splitlines() if "libtorch_cpu" in line]
        assert [Path(path).is_relative_to(tree) for path in found] == [True], listed
    finally:
        (tree / ".venv").unlink()


def test_there_is_nothing_to_build_in_it(tree, tmp_path):
    result = run(tree, "--build-only", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and f"{tree} " in result.stderr and "--build-only" in result.stderr


def test_its_documents_link_to_files_that_it_has(tree):
    pages = [path for path in tree.rglob("*.md") if ".venv" not in path.parts]
    assert len(pages) > 15
    targets = {(page, link.target) for page in pages for link in links(page.read_text()) if link.target}
    missing = [(page.name, target) for page, target in targets if not (page.parent / target).exists()]
    assert missing == []


# Of the C and C++ runtimes, and MPI, which starts the ranks. All else is linked statically or comes with the wheels.
OF_THE_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|mpi))\.so\.\d+")


def dynamic_section(program: str) -> dict[str, list[str]]:
    """Of `readelf -d`: NEEDED, RPATH, RUNPATH."""
    text = subprocess.run(
        ["readelf", "-d", BUILD / "bin" / program], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}
    ).stdout
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"\((\w+)\) +[^\[\n]*\[(.*)\]", text):
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("program", ["mpzero", "zero_to_fp32"])
def test_a_program_needs_no_library_that_a_node_may_lack(program: str) -> None:
    section = dynamic_section(program)
    (path,) = section["RPATH"]
    assert "RUNPATH" not in section  # which LD_LIBRARY_PATH overrides
    folders = path.split(":")
    assert "" not in folders  # the current folder
    for library in section["NEEDED"]:
        of_wheels = any((Path(folder) / library).exists() for folder in folders if ".venv/" in folder)
        assert of_wheels or OF_THE_SYSTEM.fullmatch(library), library


@pytest.mark.skipif(
    tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))) > (2, 36),
    reason="programs need the glibc of the machine that builds them",
)
@pytest.mark.parametrize("program", ["mpzero", "zero_to_fp32"])
def test_a_program_built_on_debian_12_or_before_runs_on_ubuntu_22_04(program: str) -> None:
    """Which has glibc 2.35."""
    symbols = subprocess.run(
        ["readelf", "-V", BUILD / "bin" / program], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}
    ).stdout
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", symbols)]
    assert max(versions) <= (2, 35)


def test_libraries_of_an_inherited_path_do_not_replace_those_of_the_wheels(tmp_path: Path) -> None:
    """As on images with another CUDA or NCCL in LD_LIBRARY_PATH, or in the current folder."""
    wheels = [name for name in dynamic_section("mpzero")["NEEDED"] if not OF_THE_SYSTEM.fullmatch(name)]
    assert "libcudart.so.13" in wheels
    for name in wheels:
        (tmp_path / name).write_bytes(b"not a library")
    version = subprocess.run(
        [BUILD / "bin/mpzero", "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        check=False,
    )
    assert version.returncode == 0, version.stderr
