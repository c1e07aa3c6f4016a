"""Compatibility with token files of older versions.

Before fingerprints, records contained the number and total size of a folder's files, and fewer formats and splits were
supported. Before --add_bos and --special_tokens, documents did not begin with BOS, special token names in texts were
encoded as ids, and only tokenizer_config.json was read for declarations of special tokens.
"""

from __future__ import annotations

import re
from pathlib import Path

from . import OVERWRITE, PrepareError, shown, shown_count
from .encoders import fingerprint_of
from .fingerprints import File
from .tokenizer_files import CONFIG

_KINDS = (".txt", ".text", ".jsonl", ".ndjson", ".json", ".parquet")
_SPLITS = {"train": "train", "training": "train", "validation": "validation", "valid": "validation"}
_SPLITS |= {"val": "validation", "dev": "validation", "test": "test"}


NO_SPECIAL_TOKENS = (
    "{}: kept, although made by an older version: documents do not begin with BOS, and special token names "
    f"in texts are encoded as ids; {OVERWRITE} recreates it."
)


def special_tokens_of(record: dict) -> dict:
    """The entries that an old record lacks. Defaults count as unchanged, so that a requeued job keeps its file."""
    made_with = {"add_bos": "false", "special_tokens": "ids"}
    defaults = {"add_bos": "auto", "special_tokens": "text"}
    return {name: value if record[name] == value else made_with[name] for name, value in defaults.items()}


def fingerprint(tokenizer: str) -> str:
    path = Path(tokenizer).expanduser()
    return fingerprint_of(path, (CONFIG,)) if path.exists() else tokenizer


def record_of(dataset: str, tokenizer: str, local: bool) -> dict:
    """The record's entries that older versions computed differently."""
    if not local:
        return {"tokenizer": _tokenizer(tokenizer)}
    path = Path(dataset).expanduser()
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return {"dataset": f"{path.resolve().name}:{len(files)} files:{size} bytes", "tokenizer": _tokenizer(tokenizer)}


def check_choice(output: Path, dataset: str, split: str, files: list[File]) -> str:
    """-> the line to print if the output is kept. files: the files that this version would read. Raises PrepareError if
    the output was made from different files."""
    then = {file.resolve() for file in _chosen(Path(dataset).expanduser(), split)}
    now = {file.path.resolve() for file in files}
    if then != now:
        raise PrepareError(
            f"{shown(output)} was made by an older version from {shown_count(len(then), 'file')} of {shown(dataset)}, "
            f"but this version would read {shown_count(len(now), 'file')}: remove it, use {OVERWRITE} to recreate "
            "it, or choose a different output."
        )
    return (
        f"{shown(output)}: kept, although it has no fingerprint of its text (older version): names and sizes "
        f"are unchanged; {OVERWRITE} recreates it."
    )


def _tokenizer(name: str) -> str:
    path = Path(name).expanduser()
    if not path.exists():
        return name
    files = [path] if path.is_file() else [path / part for part in ("tokenizer.json", "vocab.json", "merges.txt")]
    return f"{path.resolve().name}:{sum(file.stat().st_size for file in files if file.is_file())}"


def _chosen(root: Path, split: str) -> list[Path]:
    if root.is_file():
        return [root]
    if (root / "dataset_dict.json").is_file() or (root / "state.json").is_file():
        part = root / split if (root / "dataset_dict.json").is_file() else root
        return [file for file in part.rglob("*") if file.is_file()]
    files = [file for file in root.rglob("*") if file.is_file() and not file.name.startswith(".")]
    files = [file for file in files if file.name.lower().removesuffix(".gz").endswith(_KINDS)]
    splits = {file: _split(str(file.relative_to(root))) for file in files}
    return [file for file in files if splits[file] == split] if any(splits.values()) else files


def _split(name: str) -> str | None:
    return next((_SPLITS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in _SPLITS), None)
