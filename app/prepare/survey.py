"""Lists the files of a folder: the readable files, and the skipped files with the reason for each."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from . import PrepareError, shown
from .fingerprints import File
from .kinds import READABLE, describes, is_output, kind_of, why_not_read
from .streams import unreadable

_DESCRIPTION = "describes the dataset"
_MOST_OF_POINTER = 1024  # bytes


@dataclass(frozen=True)
class LeftOut:
    name: str
    size: int  # bytes
    reason: str
    is_data: bool  # True if the file may contain text of the dataset


@dataclass
class Survey:
    root: Path
    files: list[File] = field(default_factory=list)  # in the order of their names
    left_out: list[LeftOut] = field(default_factory=list)


def survey(root: Path, named: Collection[str] = ()) -> Survey:
    """Lists the files in `root`, a file or a folder. Follows symlinks and lists each file once. Reads text files that
    look like dataset descriptions only if they are in `named` or if no other files can be read."""
    found = Survey(root)
    if root.is_file():
        if kind_of(root.name) is None:
            raise PrepareError(f"{shown(root)} cannot be read ({why_not_read(root.name)}): use one of {READABLE}.")
        _refuse_pointer(root, root.stat().st_size)
        found.files.append(File(root, root.name, root.stat().st_size))
        return found
    if not root.is_dir():
        raise PrepareError(f"{shown(root)} is neither a file nor a folder: pass a file or a folder.")
    _walk(found, root)
    _read_descriptions(found, named)
    found.files.sort(key=lambda file: Path(file.name))
    found.left_out.sort(key=lambda left: Path(left.name))
    return found


def _read_descriptions(found: Survey, named: Collection[str]) -> None:
    alone = not found.files
    for left in list(found.left_out):
        readable = left.reason == _DESCRIPTION and kind_of(left.name) == "txt"
        if readable and left.size > 0 and (alone or left.name in named):
            _refuse_pointer(found.root / left.name, left.size)
            found.left_out.remove(left)
            found.files.append(File(found.root / left.name, left.name, left.size))


@dataclass(frozen=True)
class _Place:
    """A directory entry found during the walk."""

    path: Path
    name: str
    above: dict[tuple[int, int], Path]  # its parent folders, by device and inode


def _walk(found: Survey, root: Path) -> None:
    """Walks breadth first and visits symlinks last, so that a file is listed under its own name."""
    seen: dict[tuple[int, int], str] = {}  # file names by device and inode
    folders, links = deque([_Place(root, "", {_key(root.stat()): root})]), deque()

    def visit(place: _Place) -> None:
        status = _followed(place.path)
        key = _key(status)
        if place.path.name.startswith("."):
            found.left_out.append(LeftOut(place.name, _size(status), "hidden", is_data=False))
        elif key in place.above:
            reason = f"a symlink to its ancestor {shown(place.above[key])}, which is read only once"
            found.left_out.append(LeftOut(place.name, 0, reason, is_data=False))
        elif stat.S_ISDIR(status.st_mode):
            folders.append(_Place(place.path, place.name + "/", {**place.above, key: place.path}))
        elif key in seen:
            reason = f"the same file as {shown(seen[key])}, which is read only once"
            found.left_out.append(LeftOut(place.name, _size(status), reason, is_data=False))
        else:
            seen[key] = place.name
            _add_file(found, place.path, place.name, status)

    while folders or links:
        if not folders:
            visit(links.popleft())
            continue
        folder = folders.popleft()
        for entry in _entries(folder.path):
            place = _Place(Path(entry.path), folder.name + entry.name, folder.above)
            if entry.is_symlink():
                links.append(place)
            else:
                visit(place)


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise unreadable(folder, error) from error


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _followed(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        if not path.is_symlink():
            raise unreadable(path, error) from error
        raise PrepareError(
            f"{shown(path)} is a symlink to {shown(os.readlink(path))}, which cannot be followed ({error.strerror}): "
            "fix the symlink or remove it."
        ) from error


def _add_file(found: Survey, path: Path, name: str, status: os.stat_result) -> None:
    def leave_out(reason: str, is_data: bool) -> None:
        found.left_out.append(LeftOut(name, _size(status), reason, is_data))

    if not stat.S_ISREG(status.st_mode):
        leave_out("neither a file nor a folder", is_data=False)
    elif describes(path.name):
        leave_out(_DESCRIPTION, is_data=False)
    elif kind_of(path.name) is None:
        leave_out(why_not_read(path.name), is_data=not is_output(path.name))
    elif status.st_size == 0:
        leave_out("empty", is_data=False)
    else:
        _refuse_pointer(path, status.st_size)
        found.files.append(File(path, name, status.st_size))


def _refuse_pointer(path: Path, size: int) -> None:
    """Refuses a Git LFS pointer whose file has not been fetched."""
    if size > _MOST_OF_POINTER:
        return
    try:
        head = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    if head.startswith(b"version https://git-lfs.github.com/"):
        raise PrepareError(
            f"{shown(path)} is a Git LFS pointer to a file that was not fetched: run 'git lfs pull' in its folder."
        )


def _size(status: os.stat_result) -> int:
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
