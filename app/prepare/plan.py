"""Plans the token files, from the dataset's own splits or from fractions of one split."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import PrepareError, shown
from .configurations import has_none
from .fingerprints import File
from .kinds import KINDS
from .row_kinds import TEXT
from .selection import select
from .sources import (
    ChainedSource,
    FileSource,
    HubSource,
    Reading,
    SavedSource,
    Source,
    has_hub_split,
    is_saved_dataset,
    load_saved,
)
from .spans import SPANS
from .survey import LeftOut

TRAIN, VALIDATION = 0, 1  # outputs of a job
# Without --validation_fraction: 1% of the text, but at least about 200 KB and at most 10%.
DEFAULT_FRACTION, DEFAULT_BYTES, MOST_BY_DEFAULT = 0.01, 200_000, 0.1


@dataclass
class Plan:
    """The input files of each output, for a local dataset."""

    files: dict[str, list[File]]  # by split
    split: str  # split of the training file
    own_validation: bool  # True: the validation file is created from the dataset's validation split
    saved: bool  # True if the dataset was written by save_to_disk
    left_out: list[LeftOut] = field(default_factory=list)

    def split_of(self, output: Path, arguments: argparse.Namespace) -> str:
        return "validation" if self.own_validation and output == arguments.validation_output else self.split


@dataclass(frozen=True, eq=False)
class Input:
    """One of the datasets. plan: None for a Hugging Face dataset."""

    arguments: argparse.Namespace  # with the options of this dataset
    plan: Plan | None


@dataclass
class Job:
    """outputs: one token file, or the training and validation files. validation_share: fraction of the documents."""

    outputs: list[Path]
    source: Source
    validation_share: float


def is_local(arguments: argparse.Namespace) -> bool:
    name = arguments.dataset
    path = Path(name).expanduser()
    path_like = name.startswith(("/", ".", "~")) or name.count("/") > 1 or path.suffix.lower() in KINDS
    if arguments.local_dataset == "false":
        if path_like or path.exists():
            raise PrepareError(
                f"{shown(name)} is a path or exists locally, but --local_dataset false (LOCAL_DATASET) requests a "
                "Hugging Face dataset: use true, or run the command in another folder."
            )
        return False
    if not path.exists() and (path_like or arguments.local_dataset == "true"):
        raise PrepareError(f"Dataset {shown(name)} does not exist: pass a file, a folder, or a Hugging Face name.")
    if not path.exists() and arguments.files:
        raise PrepareError(f"--files selects files of a folder, but {shown(name)} is not a local folder.")
    return path.exists()


def drop_config_name(arguments: argparse.Namespace) -> str | None:
    """Removes --dataset_config_name if it has no effect on the local dataset. Returns a note for the user, or None."""
    root, name = Path(arguments.dataset).expanduser(), arguments.dataset_config_name
    if name is None or not has_none(root, name, is_saved_dataset(root)):
        return None
    arguments.dataset_config_name = None
    return (
        f"{shown(root)} has no configurations: --dataset_config_name {shown(name)} (DATASET_CONFIG_NAME) has no effect."
    )


def plan_of(arguments: argparse.Namespace) -> Plan:
    root = Path(arguments.dataset).expanduser()
    if is_saved_dataset(root):
        return _plan_of_saved(root, arguments)
    selection = select(root, arguments.dataset_config_name, arguments.files)
    split = arguments.split or "train"
    if root.is_file():
        return Plan({split: selection.by_split["train"]}, split, own_validation=False, saved=False)
    own = _wants_validation(arguments) and bool(selection.by_split.get("validation"))
    files = selection.take([split, "validation"] if own else [split], chosen_by_user=arguments.split is not None)
    return Plan(files, split, own, saved=False, left_out=selection.left_out)


def jobs_of(inputs: list[Input]) -> Iterator[Job]:
    """Yields the training file's job last, so that the training file exists only if the validation file does."""
    arguments = inputs[0].arguments
    own = [item for item in inputs if _has_validation(item)]
    split = arguments.split or "train"
    if own and len(own) < len(inputs):
        other = next(item for item in inputs if item not in own)
        raise PrepareError(
            f"{shown(own[0].arguments.dataset)} has a validation split, but {shown(other.arguments.dataset)} does not: "
            "pass --validation_fraction for both, or prepare them separately."
        )
    if own:
        yield Job([arguments.validation_output], _sources_of(inputs, "validation"), 0.0)
        yield Job([arguments.output], _sources_of(inputs, split), 0.0)
        return
    source = _sources_of(inputs, split)
    if arguments.validation_output is None:
        yield Job([arguments.output], source, 0.0)
        return
    share = arguments.validation_fraction or _default_fraction(source)
    yield Job([arguments.output, arguments.validation_output], source, share)


def target_of(unit: int, share: float) -> int:
    """Returns VALIDATION if an integer lies between unit * share + 1/2 and (unit + 1) * share + 1/2. The result does
    not depend on other units."""
    return VALIDATION if math.floor((unit + 1) * share + 0.5) > math.floor(unit * share + 0.5) else TRAIN


def _has_validation(item: Input) -> bool:
    return _hub_has_validation(item.arguments) if item.plan is None else item.plan.own_validation


def _sources_of(inputs: list[Input], split: str) -> Source:
    sources = [source_of(item.arguments, split, item.plan) for item in inputs]
    if len(sources) == 1:
        return sources[0]
    name = ", ".join(source.dataset for source in sources)
    return ChainedSource(name, split, sources[0].reading, sources=sources)


def source_of(arguments: argparse.Namespace, split: str, plan: Plan | None) -> Source:
    column = arguments.text_column if arguments.format in (TEXT, SPANS) else None
    reading = Reading(column, arguments.document_separator, arguments.skip_empty)
    if plan is None:
        return HubSource(arguments.dataset, split, reading, config_name=arguments.dataset_config_name)
    root = Path(arguments.dataset).expanduser()
    if plan.saved:
        return SavedSource(arguments.dataset, split, reading, root=root, files=plan.files[split])
    return FileSource(arguments.dataset, split, reading, files=plan.files[split])


def _plan_of_saved(root: Path, arguments: argparse.Namespace) -> Plan:
    for flag, value in (("dataset_config_name", arguments.dataset_config_name), ("files", arguments.files)):
        if value:
            raise PrepareError(f"{shown(root)} was saved with save_to_disk and does not support --{flag}: omit it.")
    data, split = load_saved(root), arguments.split or "train"
    if not isinstance(data, dict):
        if arguments.split not in (None, str(data.split)):
            raise PrepareError(f"{shown(root)} was saved without splits and has no split '{split}': omit --split.")
        return Plan({split: _saved_files(root, "")}, split, own_validation=False, saved=True)
    if split not in data:
        raise PrepareError(
            f"{shown(root)} has no split '{split}', only {', '.join(sorted(data))}: choose one with --split."
        )
    own = _wants_validation(arguments) and "validation" in data
    splits = [split, "validation"] if own else [split]
    others = [name for name in data if name not in splits]
    left = [
        LeftOut(file.name, file.size, f"belongs to split {name}", False)
        for name in others
        for file in _saved_files(root, name)
    ]
    return Plan({name: _saved_files(root, name) for name in splits}, split, own, saved=True, left_out=left)


def _saved_files(root: Path, folder: str) -> list[File]:
    """Returns the files with rows, in order. The folder may also contain cached results of `map`."""
    state = json.loads((root / folder / "state.json").read_text(encoding="utf-8"))
    files = [root / folder / entry["filename"] for entry in state["_data_files"]]
    return [File(file, str(file.relative_to(root)), file.stat().st_size) for file in files]


def _wants_validation(arguments: argparse.Namespace) -> bool:
    return (
        arguments.validation_output is not None
        and arguments.validation_fraction is None
        and arguments.split != "validation"
    )


def _hub_has_validation(arguments: argparse.Namespace) -> bool:
    return _wants_validation(arguments) and has_hub_split(
        arguments.dataset, arguments.dataset_config_name, "validation"
    )


def _default_fraction(source: Source) -> float:
    if source.num_bytes is None:
        return DEFAULT_FRACTION
    return min(max(DEFAULT_FRACTION, DEFAULT_BYTES / max(source.num_bytes, 1)), MOST_BY_DEFAULT)
