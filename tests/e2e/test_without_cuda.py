"""A build without GPU kernels is linked without CUDA's libraries: what it calls of them has a stand-in."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from trainer import BUILD, REPOSITORY

pytestmark = pytest.mark.e2e

TOPS = ("app", "base", "io", "model", "parallel")
LIBRARIES = ("torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so", "nvidia/nccl/lib/libnccl.so.2")
LIBRARIES += ("nvidia/cu13/lib/libcublasLt.so.13", "nvidia/cu13/lib/libcublas.so.13")


def symbols(*words: str | Path) -> set[str]:
    listed = subprocess.run(["nm", *words], check=True, capture_output=True, text=True).stdout
    # "0000 T name@version", "     U name", or the name of a file.
    found = re.findall(r"^(?:[0-9a-f]+)? +[A-Za-z] (\S+)$", listed, re.MULTILINE)
    return {name.split("@")[0] for name in found}


def with_gpu_kernels_alone() -> set[str]:
    """Sources that a build without GPU kernels leaves out."""
    sources: set[str] = set()
    for top in TOPS:
        for file in (REPOSITORY / top).rglob("CMakeLists.txt"):
            found = re.search(
                r"^\s+CUDA\b([^)]*?)(?=\b(?:NO_CUDA|USES|PUBLIC|PRIVATE)\b|\))", file.read_text(), re.MULTILINE
            )
            if found:
                sources |= {str((file.parent / name).relative_to(REPOSITORY)) for name in found.group(1).split()}
    return sources


def sources_of(compiled: Path) -> set[str]:
    """The sources in an object of a room: one, or those that CMake has joined."""
    path = re.sub(r"CMakeFiles/[^/]+\.dir/", "", str(compiled.relative_to(BUILD))).removesuffix(".o")
    joined = compiled.with_suffix("")
    if joined.parent.name != "Unity":
        return {path} if (REPOSITORY / path).exists() else set()
    included = re.findall(r'^#include "(.*)"$', joined.read_text(), re.MULTILINE)
    return {str(Path(name).relative_to(REPOSITORY)) for name in included}


def test_each_function_of_cudas_libraries_that_is_called_has_a_stand_in() -> None:
    site = next((REPOSITORY / ".venv").glob("lib/python3.*/site-packages"))
    if not all((site / library).exists() for library in LIBRARIES):
        pytest.skip("CUDA's libraries are not installed here")
    left_out = with_gpu_kernels_alone()
    assert {"parallel/comm/nccl_communicator.cpp", "model/kernels/cublas_lt.cpp"} <= left_out
    objects = []
    of_both = set()
    for top in TOPS:
        for file in (BUILD / top).rglob("*.o"):
            sources = sources_of(file)
            if sources - left_out:
                assert not sources & left_out, f"{file} is of both builds and of the one with GPU kernels alone"
                objects.append(file)
                of_both |= sources
    assert len(of_both) > 200
    called = symbols("--undefined-only", *objects)
    of_cuda = set().union(*(symbols("--dynamic", "--defined-only", site / library) for library in LIBRARIES))
    of_torch = symbols("--dynamic", "--defined-only", site / "torch/lib/libtorch_cpu.so")
    of_torch |= symbols("--dynamic", "--defined-only", site / "torch/lib/libc10.so")
    stand_ins = symbols("--defined-only", BUILD / "base/without_cuda/libmpzero_base_without_cuda.a")
    # The standard library's, which libraries of CUDA instantiate, too.
    needed = {name for name in (called & of_cuda) - of_torch if not re.match(r"_ZN?K?St", name)}
    assert len(needed) > 10
    # NCCL's and cuBLASLt's callers are left out as a whole.
    assert needed - stand_ins == set()
