"""make_token_files.py FOLDER: small token files of the same 401 tokens, for the tests of the reader in C++.

ours.h5 has the current layout of app/prepare_data.py, in chunks of 64 tokens. older.h5 has the layout from before there
were checksums, which is also h5py's default. new_layout.h5 has h5py's layout with libver=("v110", "v110"), and dense.h5
the same with more attributes than fit into a header. gzip.h5 is compressed.
"""

import json
import sys
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "app"))

from prepare.token_file import TokenFile

TOKENS = (np.arange(401) * 7 % 251).astype(np.uint16)
ENDS = np.array([100, 250, 401])
ATTRIBUTES = {"vocab_size": 257, "eos_token_id": 256, "tokenizer": "bytes", "source": "text train"}
ARGUMENTS = {"dataset": "text", "content": {"files": 1, "bytes": 398}}
CHUNK = 64


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ours = TokenFile(folder / "ours.h5", TOKENS.dtype, CHUNK)
    ours.append(TOKENS, ENDS)
    ours.commit(ATTRIBUTES, ARGUMENTS)
    write(folder / "older.h5")
    write(folder / "new_layout.h5", libver="v110")
    with h5py.File(write(folder / "dense.h5", libver="v110"), "r+", libver=("v110", "v110")) as file:
        file.attrs.update({f"note{i}": i for i in range(8)})
    write(folder / "gzip.h5", compression="gzip", shuffle=True)


def write(path: Path, libver: str = "earliest", **filters) -> Path:
    with h5py.File(path, "w", libver=(libver, "v110")) as file:
        chunks = {"chunks": (CHUNK,), "maxshape": (None,)}
        file.create_dataset("tokens", data=TOKENS, **chunks, **filters)
        file.create_dataset("document_offsets", data=np.concatenate([[0], ENDS]).astype(np.uint64), **chunks)
        facts = {"format_version": 1, "max_token_id": int(TOKENS.max())}
        file.attrs.update({**facts, **ATTRIBUTES, "arguments": json.dumps(ARGUMENTS)})
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]))
