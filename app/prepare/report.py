"""Prints the final report: the files that were read, and the files that were skipped with the reasons."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from . import shown_count, shown_size
from .fingerprints import File
from .kinds import kind_of
from .selection import some
from .survey import LeftOut


def print_files_read(output: str, dataset: str, files: list[File]) -> None:
    """Prints the files that were read. output: names of the token files."""
    kinds: dict[str, int] = defaultdict(int)
    for file in files:
        kinds[kind_of(file.path.name) or Path(file.name).suffix.removeprefix(".")] += 1
    counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    size, names = shown_size(sum(file.size for file in files)), some([file.name for file in files])
    print(f"{output}: read {shown_count(len(files), 'file')} of {dataset}, {size} ({counted}): {names}.")


def print_files_left_out(dataset: str, left_out: list[LeftOut]) -> None:
    """Prints one line per reason, in descending order of size."""
    if not left_out:
        return
    reasons: dict[str, list[LeftOut]] = defaultdict(list)
    for left in left_out:
        reasons[left.reason].append(left)
    sizes = {reason: sum(left.size for left in group) for reason, group in reasons.items()}
    print(f"{dataset}: skipped {shown_count(len(left_out), 'file')}, {shown_size(sum(sizes.values()))}:")
    for reason in sorted(reasons, key=lambda reason: -sizes[reason]):
        names = some([left.name for left in reasons[reason]])
        print(f"  {names} ({shown_size(sizes[reason])}): {reason}")
