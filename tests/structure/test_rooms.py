"""The rooms of the house: which folder may include which, how full they are, and where the tests of each lie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A folder that is one library, without rooms.
COMPLETE = ("base",)
SOURCES = {".cpp", ".hpp", ".cu", ".cuh"}
# A folder that takes longer to look through than this is to be divided. Each kernel has a header and a file for GPUs.
MOST_FILES = {"model/kernels": 31}
MOST_FILES_ELSEWHERE = 25


@dataclass
class Room:
    folder: str
    uses: set[str]


def names_of(text: str, keyword: str) -> list[str]:
    found = re.search(rf"\b{keyword}\b([^)]*?)(?=\b(?:SOURCES|CUDA|NO_CUDA|USES|PUBLIC|PRIVATE)\b|\))", text)
    return found.group(1).split() if found else []


def read_rooms() -> dict[str, Room]:
    rooms = {name: Room(name, {"base"} - {name}) for name in COMPLETE}
    for path in ROOT.glob("*/**/CMakeLists.txt"):
        folder = str(path.parent.relative_to(ROOT))
        call = re.search(r"^mpzero_add_room\(.*?\)", path.read_text(), re.DOTALL | re.MULTILINE)
        if call and not folder.startswith((".venv", "build")):
            rooms[folder] = Room(folder, set(names_of(call.group(0), "USES")))
    return rooms


ROOMS = read_rooms()


def room_of(path: str) -> str | None:
    """The innermost room that holds a file."""
    folders = [str(parent) for parent in Path(path).parents]
    return next((folder for folder in folders if folder in ROOMS), None)


def files_of(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES)


def includes_of(path: Path) -> list[str]:
    return re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)


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
    for top in ("app", "base", "io", "model", "parallel"):
        for folder in sorted({path.parent for path in files_of(top)}):
            name = str(folder.relative_to(ROOT))
            count = len([path for path in folder.iterdir() if path.suffix in SOURCES])
            assert count <= MOST_FILES.get(name, MOST_FILES_ELSEWHERE), f"{name} has {count} files: divide it"
            programs = {"main.cpp", "zero_to_fp32.cpp", "checkpoint_command.cpp", "checkpoint_command.hpp"}
            if room_of(f"{name}/x") is None:
                assert name == "app" and {path.name for path in folder.iterdir() if path.suffix in SOURCES} <= programs


def test_the_tests_of_a_room_lie_in_the_folder_of_its_name() -> None:
    for top in ("app", "base", "io", "model", "parallel"):
        for path in (ROOT / "tests" / top).rglob("test_*.cpp"):
            folder = str(path.parent.relative_to(ROOT / "tests"))
            assert folder in ROOMS, f"tests/{folder} is no room's name"
            assert folder in rooms_of_test(path), f"{path.relative_to(ROOT)} includes nothing of {folder}"
