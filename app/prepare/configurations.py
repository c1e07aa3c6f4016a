"""Reads the configurations that a dataset folder declares in the YAML metadata of README.md, as Hugging Face
repositories do: for example, the files of `en` and the split of each file."""

from __future__ import annotations

import re
from pathlib import Path

from . import PrepareError, shown
from .fingerprints import File


def configurations_of(root: Path) -> dict[str, dict]:
    """Returns the configurations by name, in the order of the README, or {} if the README declares none."""
    card = root / "README.md"
    if not card.is_file() or not re.search(rb"^configs:", card.read_bytes(), re.MULTILINE):
        return {}
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCard

    try:
        return dict(MetadataConfigs.from_dataset_card_data(DatasetCard.load(card).data))
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "")
        raise PrepareError(
            f"The configurations in {shown(card)} cannot be read ({type(error).__name__}: {first[:200]}): fix the "
            "YAML metadata at the top of the file, or choose files with --files."
        ) from error


def has_none(root: Path, name: str, saved: bool) -> bool:
    """Returns True if --dataset_config_name has no effect: this file or folder neither declares configurations nor
    contains a folder of that name. saved: True if written by save_to_disk, which drops configurations."""
    if root.is_file():
        return True
    return not (root / name).is_dir() and (saved or not configurations_of(root))


def configuration_named(root: Path, name: str | None) -> tuple[str, dict] | None:
    """Returns the configuration of --dataset_config_name, or else the README's default; None if neither exists."""
    known = configurations_of(root) if root.is_dir() else {}
    if not known:
        if name is None:
            return None
        raise PrepareError(
            f"{shown(root)} has no configuration '{name}', because its README.md does not declare any: "
            f"omit --dataset_config_name (DATASET_CONFIG_NAME), or pass {shown(root / name)} as the dataset to "
            "read that folder."
        )
    names = ", ".join(known)
    if name is not None and name not in known:
        raise PrepareError(
            f"{shown(root)} has no configuration '{name}', only {names}: choose one with --dataset_config_name."
        )
    if name is None:
        defaults = [key for key in known if len(known) == 1 or key == "default" or known[key].get("default")]
        if len(defaults) != 1:
            raise PrepareError(
                f"{shown(root)} has the configurations {names}: choose one with --dataset_config_name, or read all "
                "files with --files '*'."
            )
        name = defaults[0]
    return name, known[name]


def files_by_split(root: Path, name: str, configuration: dict, files: list[File]) -> dict[str, list[File]] | None:
    """Returns the files of the configuration by split, or None if the configuration does not list them."""
    from datasets.data_files import sanitize_patterns

    declared = configuration.get("data_files")
    if declared is None:
        return None
    folder = str(configuration.get("data_dir") or "").strip("/")
    chosen: dict[str, list[File]] = {}
    for split, patterns in sanitize_patterns(declared).items():
        matched = set()
        for pattern in patterns:
            found = {file for file in files if _matcher(root, folder, str(pattern))(file.name)}
            if not found:
                raise PrepareError(
                    f"Configuration '{name}' of {shown(root)} lists '{pattern}' for split '{split}', but no readable "
                    "file matches: download the missing files, or choose files with --files."
                )
            matched |= found
        chosen[split] = [file for file in files if file in matched]
    return chosen


def _matcher(root: Path, folder: str, pattern: str):
    from fsspec.utils import glob_translate

    pattern = pattern.removeprefix("./")
    if "::" in pattern or "://" in pattern or pattern.startswith("/") or ".." in pattern.split("/"):
        raise PrepareError(
            f"{shown(root / 'README.md')} lists '{pattern}', which is outside the folder: choose files with "
            "--files, or use the Hugging Face name."
        )
    full = f"{folder}/{pattern}" if folder else pattern
    try:
        return re.compile(glob_translate(full)).match
    except (ValueError, re.error) as error:
        raise PrepareError(
            f"{shown(root / 'README.md')} lists '{pattern}', which is not a valid file name pattern ({error}): "
            "fix it, or choose files with --files."
        ) from error
