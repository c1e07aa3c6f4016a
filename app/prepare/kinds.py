"""Determines the formats of files from their extensions."""

from __future__ import annotations

from pathlib import Path

from .streams import COMPRESSIONS, compression_of

# WikiText files end in .tokens and .raw.
KINDS = {".txt": "txt", ".text": "txt", ".tokens": "txt", ".raw": "txt"}
KINDS |= {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
READABLE = f"{', '.join(KINDS)} (also compressed as {', '.join(COMPRESSIONS)}, except Parquet)"
ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")
# Names of Hugging Face metadata files, and stems of files that describe a dataset.
DESCRIPTIONS = ("config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
_NOTES = (
    "readme",
    "license",
    "licence",
    "copying",
    "notice",
    "citation",
    "changelog",
    "checksums",
    "sha256sums",
    "md5sums",
)


def kind_of(name: str) -> str | None:
    """Returns the format of a file, a value of KINDS, or None if it is not supported."""
    kind = KINDS.get(_ending(name))
    return None if kind == "parquet" and compression_of(name) is not None else kind


def _ending(name: str) -> str:
    """Returns the extension, e.g. .jsonl for FILE.jsonl.gz."""
    path = Path(name.lower())
    return Path(path.stem if compression_of(name) is not None else path).suffix


def why_not_read(name: str) -> str:
    """Returns the reason why kind_of() returns None."""
    ending = _ending(name)
    if ending in ARCHIVES:
        return "archives are not supported: unpack them"
    if ending in (".h5", ".hdf5"):
        return "HDF5 is the format of token files, not of datasets"
    if ending == ".parquet":
        return "compressed Parquet files are not supported: decompress them"
    if ending == ".arrow":
        return "Arrow files are read only from save_to_disk folders"
    if not ending:
        return "the format is unknown without an extension"
    return f"{ending} files are not supported"


def describes(name: str) -> bool:
    """Returns True if the file's name indicates metadata of the dataset rather than text."""
    lower = name.lower()
    if name in DESCRIPTIONS:
        return True
    return Path(lower).stem in _NOTES and (kind_of(name) is None or lower.endswith(".txt"))


def is_output(name: str) -> bool:
    """Returns True for a file in this program's output format, which may be in the dataset's folder."""
    return Path(name.lower()).suffix in (".h5", ".hdf5")
