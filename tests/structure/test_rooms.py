"""The rooms of the house: which folder may include which, how full they are, and where the tests of each lie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A folder that is one library, without rooms.
COMPLETE = {"base": {"base/text"}}
# Sources without a test file of their own.
NO_OWN_TEST = ROOT / "tests/structure/no_own_test.txt"
SOURCES = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inc"}
TOPS = ("app", "base", "io", "model", "parallel")
# A folder that takes longer to look through than this is to be divided. Each kernel has a header and a file for GPUs,
# and each model family a file.
MOST_FILES = {"model/kernels": 50, "model/architecture": 40}
MOST_FILES_ELSEWHERE = 30


@dataclass
class Room:
    folder: str
    uses: set[str]


def names_of(text: str, keyword: str) -> list[str]:
    found = re.search(rf"\b{keyword}\b([^)]*?)(?=\b(?:SOURCES|CUDA|NO_CUDA|USES|PUBLIC|PRIVATE|JOIN)\b|\))", text)
    return found.group(1).split() if found else []


def uses_of(cmake: str) -> set[str] | None:
    """The rooms that a CMakeLists.txt names after USES; None where it adds no room."""
    code = re.sub(r"#.*", "", cmake)
    call = re.search(r"^\s*mpzero_add_room\(.*?\)", code, re.DOTALL | re.MULTILINE)
    return set(names_of(call.group(0), "USES")) if call else None


def read_rooms() -> dict[str, Room]:
    rooms = {name: Room(name, uses) for name, uses in COMPLETE.items()}
    for top in TOPS:
        for path in (ROOT / top).rglob("CMakeLists.txt"):
            folder = str(path.parent.relative_to(ROOT))
            uses = uses_of(path.read_text())
            if uses is not None:
                rooms[folder] = Room(folder, uses)
    return rooms


ROOMS = read_rooms()


def room_of(path: str) -> str | None:
    """The innermost room that holds a file."""
    folders = [str(parent) for parent in Path(path).parents]
    return next((folder for folder in folders if folder in ROOMS), None)


def files_of(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES)


def includes_in(text: str) -> list[str]:
    """This project's headers that C++ code includes. <...> can name one, too."""
    found = re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', text, re.MULTILINE)
    return [name for mark, name in found if mark == '"' or (ROOT / name).is_file()]


def includes_of(path: Path) -> list[str]:
    return includes_in(path.read_text())


def rooms_of_test(path: Path) -> set[str | None]:
    """Those whose headers a test includes, itself or by a header of the tests."""
    headers = includes_of(path)
    of_tests = [ROOT / header for header in headers if header.startswith("tests/")]
    own = {room_of(header) for header in headers if not header.startswith("tests/")}
    return own.union(*(rooms_of_test(header) for header in of_tests))


def used_by(folder: str) -> dict[str, str]:
    """The rooms whose headers the files of a room include, each with one line that does."""
    used: dict[str, str] = {}
    for path in files_of(folder):
        if room_of(str(path.relative_to(ROOT))) != folder:
            continue
        for header in includes_of(path):
            other = room_of(header)
            assert other is not None, f"{path}: {header} lies in no room"
            if other != folder:
                used.setdefault(other, f"{path.relative_to(ROOT)} includes {header}")
    return used


@pytest.mark.parametrize(
    "line",
    [
        '#include "app/train/trainer.hpp"',
        "#include <app/train/trainer.hpp>",
        '  #include "app/train/trainer.hpp"',
        "#  include\t<app/train/trainer.hpp>",
        '#include"app/train/trainer.hpp"  // why',
    ],
)
def test_each_way_to_include_a_header_is_seen(line: str) -> None:
    assert includes_in(f"#pragma once\n#include <vector>\n#if A\n{line}\n#endif\n") == ["app/train/trainer.hpp"]


def test_headers_of_others_are_no_arrows() -> None:
    assert includes_in("#include <ATen/core/Tensor.h>\n#include <nccl.h>\n// #include <app/train/trainer.hpp>\n") == []


def test_files_of_each_kind_are_read() -> None:
    assert ROOT / "app/machine/ec2_instances.inc" in files_of("app/machine")
    assert {path.suffix for top in TOPS for path in files_of(top)} <= SOURCES
    unread = {path.suffix for top in TOPS for path in (ROOT / top).rglob("*") if path.is_file()} - SOURCES
    assert unread <= {"", ".css", ".js", ".json", ".py", ".pyc", ".txt"}, (
        "add the kinds of file that can include a header"
    )


def test_comments_do_not_end_the_list_of_rooms() -> None:
    cmake = """
mpzero_add_room(
  SOURCES a.cpp  # reads it (twice)
  USES base  # errors (and more)
    io/files  # USES nothing) else
  PRIVATE fmt)
"""
    assert uses_of(cmake) == {"base", "io/files"}
    assert uses_of("# mpzero_add_room(USES base)\nadd_subdirectory(x)\n") is None


@pytest.mark.parametrize("folder", sorted(ROOMS))
def test_a_room_uses_what_its_cmake_file_names(folder: str) -> None:
    used = used_by(folder)
    unnamed = [line for other, line in used.items() if other not in ROOMS[folder].uses]
    assert unnamed == [], f"{folder}/CMakeLists.txt does not name these rooms after USES"
    if folder not in COMPLETE:
        assert sorted(ROOMS[folder].uses - used.keys()) == [], f"{folder} names rooms that it does not include"


def test_no_arrow_between_rooms_points_back() -> None:
    """No circle; and base knows nothing, parallel and io know base, model knows base, only app knows all."""
    below = {"base": set(), "parallel": {"base"}, "model": {"base"}, "io": {"base"}}
    done: set[str] = set()
    waiting = dict(ROOMS)
    while waiting:
        ready = [name for name, room in waiting.items() if room.uses <= done]
        assert ready, f"these rooms use each other in a circle: {sorted(waiting)}"
        for name in ready:
            done.add(name)
            del waiting[name]
    for name, room in ROOMS.items():
        top = name.split("/")[0]
        others = {use.split("/")[0] for use in room.uses} - {top}
        assert top == "app" or others <= below[top], name


def test_no_room_is_too_full_and_every_source_lies_in_one() -> None:
    for top in TOPS:
        for folder in sorted({path.parent for path in files_of(top)}):
            name = str(folder.relative_to(ROOT))
            count = len([path for path in folder.iterdir() if path.suffix in SOURCES])
            assert count <= MOST_FILES.get(name, MOST_FILES_ELSEWHERE), f"{name} has {count} files: divide it"
            programs = {"main.cpp", "zero_to_fp32.cpp", "checkpoint_command.cpp", "checkpoint_command.hpp"}
            if room_of(f"{name}/x") is None:
                assert name == "app" and {path.name for path in folder.iterdir() if path.suffix in SOURCES} <= programs


def test_the_tests_of_a_room_lie_in_the_folder_of_its_name() -> None:
    for top in TOPS:
        for path in (ROOT / "tests" / top).rglob("test_*.cpp"):
            folder = str(path.parent.relative_to(ROOT / "tests"))
            assert folder in ROOMS, f"tests/{folder} is no room's name"
            # base/without_cuda defines what others declare.
            has_headers = any((ROOT / folder).glob("*.hpp"))
            assert not has_headers or folder in rooms_of_test(path), (
                f"{path.relative_to(ROOT)} includes nothing of {folder}"
            )


def listed_sources() -> list[str]:
    lines = NO_OWN_TEST.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("folder", sorted(ROOMS))
def test_each_room_has_tests(folder: str) -> None:
    assert list((ROOT / "tests" / folder).glob("test_*.cpp")) != [], f"tests/{folder} holds no test"


def test_each_source_has_a_test_of_its_own_unless_it_is_listed() -> None:
    """The test of a/b.cpp is tests/a/test_b.cpp."""
    sources = [path.relative_to(ROOT) for top in TOPS for path in files_of(top) if path.suffix == ".cpp"]
    untested = {str(path) for path in sources if not (ROOT / "tests" / path.parent / f"test_{path.stem}.cpp").is_file()}
    listed = listed_sources()
    assert sorted(untested - set(listed)) == [], "each of these needs a test file of its own: tests/a/test_b.cpp"
    assert sorted(set(listed) - untested) == [], f"these have one, or are gone: remove them from {NO_OWN_TEST.name}"
    assert listed == sorted(set(listed)), f"{NO_OWN_TEST.name} is not in order"


def test_headers_of_atens_cuda_half_are_for_builds_with_gpu_kernels():
    """They include those of cuBLAS, cuSPARSE and cuSOLVER, which a machine without GPUs does not get."""
    found = []
    for folder in [ROOT / top for top in TOPS]:
        for path in sorted(folder.rglob("*.[ch]pp")):
            headers = set(
                re.findall(
                    r"#include <(ATen/cuda/[^>]+|cu(?:blas|dnn|sparse|solver)[^>]*|nccl[^>]*)>", path.read_text()
                )
            )
            cmake = (path.parent / "CMakeLists.txt").read_text()
            if headers - {"ATen/cuda/Sleep.h"} and path.name not in names_of(cmake, "CUDA"):
                found.append(str(path.relative_to(ROOT)))
    assert found == []


# Where fmt and the C library fail, they throw or leave text in a buffer; base/output.cpp does neither.
PRINTS = re.compile(
    r"fmt::print\(|std::(cout|cerr|clog|puts|fputs|printf|fprintf|perror)\b|[^_\w](printf|fprintf|puts|perror)\("
)


def test_only_the_output_layer_writes_stdout_and_stderr():
    found = []
    for top in ("app", "base", "io", "model", "parallel"):
        for path in files_of(top):
            if path.suffix in {".cpp", ".hpp", ".cu", ".cuh"} and PRINTS.search(path.read_text()):
                found.append(str(path.relative_to(ROOT)))
    assert found == []
