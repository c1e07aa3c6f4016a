#!/usr/bin/env python3
"""The fuzzers' inputs: corpus/PARSER.zip, and seeds that are generated.

corpus.py unpack PARSER FOLDER          unpacks the corpus and adds the seeds
corpus.py merge PARSER FUZZER FOLDER    adds the inputs in FOLDER that increase coverage (FUZZER: the built fuzz_PARSER)
"""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARSERS = ("pickle", "zip", "manifest", "safetensors", "ds_config")
# Maximum size of a parser's inputs in the repository.
MOST_BYTES = 60_000


def unpack(parser: str, folder: Path) -> None:
    packed = HERE / "corpus" / f"{parser}.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(folder)


def states() -> dict:
    return {
        "shapes": [(2, 3)],
        "numbers": [1, -(2**40), 0.5, True, None, b"bytes", "text", (1, 2, 3, 4), {"a"}],
    }


def pickle_seeds(folder: Path) -> None:
    """Pickles of every protocol that is read, and one with tensors."""
    for protocol in range(2, 6):
        (folder / f"protocol{protocol}").write_bytes(pickle.dumps(states(), protocol=protocol))
    archive = folder / "archive"
    zip_seeds(folder)
    with zipfile.ZipFile(archive) as opened:
        (folder / "tensors").write_bytes(opened.read("archive/data.pkl"))
    archive.unlink()


def zip_seeds(folder: Path) -> None:
    import torch

    tensors = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(3, dtype=torch.bfloat16)}
    torch.save({**states(), "module": tensors, "shape": torch.Size([2, 3])}, folder / "archive.pt")
    (folder / "archive.pt").rename(folder / "archive")


def manifest_seeds(folder: Path) -> None:
    dataset = {"unit": "embedding", "kind": "master", "begin": 0, "count": 8, "offset": 64, "xxh3_64": "0" * 16}
    hdf5 = {"name": "a.h5", "size": 96, "structure_xxh3_64": "0" * 16, "datasets": [dataset]}
    archive = {"name": "a.pt", "size": 96, "has_own_checksums": True}
    content = {
        "format_version": 1,
        "block_bytes": 4 << 20,
        "generation": 3,
        "saved_at": "2026-11-21T03:14:15Z",
        "files": [hdf5, archive],
        "run": {"id": "00112233445566aa", "init_from": ""},
    }
    (folder / "content").write_text("c" + json.dumps(content))
    (folder / "file").write_text(json.dumps({"content": content, "content_xxh3_64": "0" * 16}))


def safetensors_seeds(folder: Path) -> None:
    tensors = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [16, 24]},
        "c": {"dtype": "F16", "shape": [], "data_offsets": [24, 26]},
        "d": {"dtype": "I64", "shape": [0], "data_offsets": [26, 26]},
    }
    header = json.dumps(tensors).encode()
    (folder / "file").write_bytes(struct.pack("<Q", len(header)) + header + bytes(26))
    index = {"metadata": {"total_size": 16}, "weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}
    (folder / "index").write_text("i" + json.dumps(index))


def ds_config_seeds(folder: Path) -> None:
    root = HERE.parents[2]
    for path in [*root.glob("configs/ds_config*.json"), *root.glob("tests/golden/*/ds_config.json")]:
        (folder / f"{path.parent.name}-{path.name}").write_bytes(path.read_bytes())


def seeds(parser: str, folder: Path) -> None:
    {
        "pickle": pickle_seeds,
        "zip": zip_seeds,
        "manifest": manifest_seeds,
        "safetensors": safetensors_seeds,
        "ds_config": ds_config_seeds,
    }[parser](folder)


def pack(parser: str, folder: Path) -> None:
    """The same inputs give the same bytes. If they are too large, the largest inputs are left out."""
    kept = sorted((path.read_bytes() for path in folder.iterdir()), key=lambda data: (len(data), data))
    total = 0
    (HERE / "corpus").mkdir(exist_ok=True)
    with zipfile.ZipFile(HERE / "corpus" / f"{parser}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for data in kept:
            total += len(data)
            if total > MOST_BYTES:
                break
            archive.writestr(zipfile.ZipInfo(hashlib.sha1(data).hexdigest()), data, zipfile.ZIP_DEFLATED)


def merge(parser: str, fuzzer: Path, found: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        known, merged = Path(scratch) / "known", Path(scratch) / "merged"
        known.mkdir()
        merged.mkdir()
        unpack(parser, known)
        seeds(parser, known)
        words = [fuzzer, "-merge=1", "-rss_limit_mb=2048", merged, known, found]
        subprocess.run(words, check=True, capture_output=True)
        pack(parser, merged)


def main() -> None:
    match sys.argv[1:]:
        case ["unpack", parser, folder]:
            Path(folder).mkdir(parents=True, exist_ok=True)
            unpack(parser, Path(folder))
            seeds(parser, Path(folder))
        case ["merge", parser, fuzzer, folder]:
            merge(parser, Path(fuzzer), Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
