"""Selects the files of a dataset by split. Refuses a selection that skips most of the text, and lists skipped files."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from . import PrepareError, shown, shown_count, shown_size
from .configurations import configuration_named, files_by_split
from .fingerprints import File
from .kinds import READABLE
from .survey import LeftOut, Survey, survey

NAMES_SHOWN = 4
SPLITS = {"train": "train", "training": "train", "validation": "validation", "valid": "validation"}
SPLITS |= {"val": "validation", "dev": "validation"}
SPLITS |= dict.fromkeys(("test", "testing", "eval", "evaluation"), "test")
# "train 01", "train (2)" and "train3" mean train.
_NUMBER = re.compile(r"^\d+|[\s\d()\[\]]+$")


@dataclass
class Selection:
    """The files of a local dataset, by split."""

    root: Path
    by_split: dict[str, list[File]]
    left_out: list[LeftOut] = field(default_factory=list)
    split_matters: bool = True  # True if file names or a configuration determine the splits
    patterns: tuple[str, ...] = ()  # values of --files

    def take(self, splits: list[str], chosen_by_user: bool) -> dict[str, list[File]]:
        """Returns the files of these splits, and adds all other files to `left_out`. chosen_by_user: True if the first
        split is from --split."""
        for split in splits:
            if not self.by_split.get(split):
                raise self._no_such_split(split)
        taken = {split: self.by_split[split] for split in splits}
        for split, files in self.by_split.items():
            if split not in splits:
                reason = f"belongs to split {split}"
                self.left_out += [LeftOut(file.name, file.size, reason, not chosen_by_user) for file in files]
        if chosen_by_user:
            unnamed = [replace(left, is_data=False) if left.reason == NO_SPLIT else left for left in self.left_out]
            self.left_out = unnamed
        self._refuse_little([file for files in taken.values() for file in files])
        return taken

    def _no_such_split(self, split: str) -> PrepareError:
        known = ", ".join(sorted(self.by_split))
        if not self.split_matters:
            return PrepareError(
                f"{shown(self.root)} contains no files for split '{split}', because its file names contain no splits: "
                "omit --split to read all files, or choose files with --files."
            )
        return PrepareError(
            f"{shown(self.root)} contains no files for split '{split}', only for {known}: choose one with --split, or "
            "choose files with --files."
        )

    def _refuse_little(self, taken: list[File]) -> None:
        missed = [left for left in self.left_out if left.is_data]
        size, missed_size = sum(file.size for file in taken), sum(left.size for left in missed)
        if missed_size <= size:
            return
        reasons: dict[str, int] = defaultdict(int)
        for left in missed:
            reasons[left.reason] += left.size
        reason = max(reasons, key=reasons.__getitem__)
        examples = [left.name for left in missed if left.reason == reason]
        raise PrepareError(
            f"Most of {shown(self.root)} would be skipped: {shown_size(missed_size)} in "
            f"{shown_count(len(missed), 'file')}, while {shown_size(size)} in {shown_count(len(taken), 'file')} "
            f"would be read ({', '.join(shown(file.name) for file in taken[:NAMES_SHOWN])}"
            f"{', …' if len(taken) > NAMES_SHOWN else ''}); {some(examples)}: {reason}; {self._ways_on(reason)}."
        )

    def _ways_on(self, reason: str) -> str:
        if reason == NO_SPLIT or reason.startswith("belongs to split "):
            return "use --files '*' for all files, --split train for only the training files, or rename the files"
        if self.patterns:
            return "convert those files, or narrow --files"
        return "convert those files, or select the files to read with --files, such as --files '*.txt'"


NO_SPLIT = "its name contains no split, but names of other files do"


def select(root: Path, config_name: str | None, patterns: list[str]) -> Selection:
    """Selects files by split. root: a file or a folder. patterns: values of --files."""
    configuration = None if patterns and config_name is None else configuration_named(root, config_name)
    if patterns and (configuration is not None or root.is_file()):
        raise PrepareError("--files selects files of a folder and cannot be combined with --dataset_config_name.")
    found = survey(root, named=patterns)
    if root.is_file():
        return Selection(root, {"train": found.files}, split_matters=False)
    if not found.files:
        raise PrepareError(f"{shown(root)} contains no readable files: {READABLE} are supported{_but(found.left_out)}.")
    if patterns:
        return _matching(found, patterns)
    if configuration is not None:
        return _configured(found, *configuration)
    return _by_names(found)


def _matching(found: Survey, patterns: list[str]) -> Selection:
    for pattern in patterns:
        if not any(fnmatchcase(file.name, pattern) for file in found.files):
            unread = [left for left in found.left_out if fnmatchcase(left.name, pattern)]
            raise PrepareError(
                f"No readable file of {shown(found.root)} matches --files '{pattern}'{_but(unread)}: '*' matches any "
                "characters, including '/'."
            )

    def matches(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    others = [
        LeftOut(file.name, file.size, "not selected by --files", False)
        for file in found.files
        if not matches(file.name)
    ]
    left = [left if matches(left.name) else replace(left, is_data=False) for left in found.left_out]
    files = [file for file in found.files if matches(file.name)]
    return Selection(found.root, {"train": files}, left + others, split_matters=False, patterns=tuple(patterns))


def _configured(found: Survey, name: str, configuration: dict) -> Selection:
    by_split = files_by_split(found.root, name, configuration, found.files)
    if by_split is None:
        folder = str(configuration.get("data_dir") or "").strip("/")
        inside = [file for file in found.files if not folder or file.name.startswith(folder + "/")]
        selection = _by_names(Survey(found.root, inside, []), f"{folder}/" if folder else "")
        by_split, left_out = selection.by_split, selection.left_out
    else:
        left_out = []
    chosen = {file.name for files in by_split.values() for file in files} | {left.name for left in left_out}
    reason = f"not in configuration {name}"
    others = [LeftOut(file.name, file.size, reason, False) for file in found.files if file.name not in chosen]
    # Files that the configuration does not list do not count as missed data.
    left_out += [replace(left, is_data=False) for left in found.left_out]
    return Selection(found.root, by_split, left_out + others)


def _by_names(found: Survey, prefix: str = "") -> Selection:
    """Selects files by the splits in their names. prefix: common prefix of all names, which is not searched."""
    by_split: dict[str, list[File]] = defaultdict(list)
    unnamed = []
    for file in found.files:
        split = split_of(file.name.removeprefix(prefix))
        (unnamed if split is None else by_split[split]).append(file)
    left_out = list(found.left_out)
    says_splits = bool(by_split)
    if by_split.get("train"):
        left_out += [LeftOut(file.name, file.size, NO_SPLIT, True) for file in unnamed]
    elif unnamed:
        by_split["train"] = unnamed
    return Selection(found.root, dict(by_split), left_out, split_matters=says_splits)


def split_of(name: str) -> str | None:
    """Returns train, validation, test or None. name: relative to the dataset, with "/".

    The outermost folder with a split determines the result; if there is none, the file name does. A name has a split if
    one of its parts, between dots, dashes and underscores, is a word of SPLITS, with or without a number. "a train
    journey" is one part and has no split. A name with words of two splits has no split.
    """
    for part in PurePosixPath(name.lower()).parts:
        words = (_NUMBER.sub("", word) for word in re.split(r"[-._]", part))
        said = {SPLITS[word] for word in words if word in SPLITS}
        if len(said) == 1:
            return said.pop()
    return None


def some(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(map(shown, names[:NAMES_SHOWN])) + (f" and {more:,} more" if more > 0 else "")


def _but(left_out: list[LeftOut]) -> str:
    return f" ({some([f'{left.name}: {left.reason}' for left in left_out])})" if left_out else ""
