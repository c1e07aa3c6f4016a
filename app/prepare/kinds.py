"""Which files are read, by the endings of their names."""

from __future__ import annotations

from pathlib import Path

from .streams import COMPRESSIONS, compression_of

# WikiText's own files end in .tokens and .raw.
KINDS = {".txt": "txt", ".text": "txt", ".tokens": "txt", ".raw": "txt"}
KINDS |= {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
READABLE = f"{', '.join(KINDS)} ({', '.join(COMPRESSIONS)} behind them, too, but for Parquet)"
ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")
# Names that Hugging Face gives to descriptions, and what describes a data set where it cannot be read as one.
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
    """A value of KINDS; None where the file cannot be read."""
    lower = name.lower()
    compressed = compression_of(lower) is not None
    kind = KINDS.get(Path(Path(lower).stem if compressed else lower).suffix)
    return None if kind == "parquet" and compressed else kind


def why_not_read(name: str) -> str:
    """For files that kind_of() does not know."""
    lower = name.lower()
    compressed = compression_of(lower) is not None
    ending = Path(Path(lower).stem if compressed else lower).suffix
    if ending in ARCHIVES:
        return "archives are not read: unpack them"
    if ending in (".h5", ".hdf5"):
        return "HDF5 is what token files are made as, and is not read"
    if ending == ".parquet":
        return "Parquet compressed a second time is not read: unpack it"
    if ending == ".arrow":
        return "Arrow files are read only where the folder that save_to_disk made is named itself"
    if not ending:
        return "no ending says what they hold"
    return f"{ending} is no kind of file that is read"


def describes(name: str) -> bool:
    """Whether a file says something of the data set and holds none of its text, as far as its name tells."""
    lower = name.lower()
    if name in DESCRIPTIONS:
        return True
    return Path(lower).stem in _NOTES and (kind_of(name) is None or lower.endswith(".txt"))


def is_output(name: str) -> bool:
    """Whether a file is of the kind that is made here, which may lie beside the texts."""
    return Path(name.lower()).suffix in (".h5", ".hdf5")
