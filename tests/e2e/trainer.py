"""Runs the built programs like a user does, for the end-to-end tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "app"))

from prepare.token_file import TokenFile  # noqa: E402

BUILD = Path(os.environ.get("BUILD_DIR", REPOSITORY / "build"))
GOLDEN = REPOSITORY / "tests" / "golden"
# What tests compile and later sessions use again : the folder of pytest's config.cache.mkdir().
CACHE = REPOSITORY / ".pytest_cache" / "d"

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Containers may forbid the system call that the shared - memory transport would use.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    # More ranks than cores : waiting ranks yield to others.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def write_tokens(
    path: Path,
    tokens: np.ndarray,
    vocab_size: int,
    ends: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    mask_row: int = 0,
) -> Path:
    """Writes a token file with the writer of app/prepare_data.py. ends: of its documents; None: it is one. mask: of
    packed examples, in rows of `mask_row` tokens."""
    file = TokenFile(path, np.dtype(np.uint16), masked=mask is not None)
    try:
        file.append(tokens, np.array([len(tokens)]) if ends is None else ends, mask)
        attributes = {
            **({} if mask is None else {"format_version": 2, "packed_sequence_length": mask_row}),
            "vocab_size": vocab_size,
            "eos_token_id": vocab_size - 1,
            "tokenizer": "golden",
            "source": "golden",
        }
        file.commit(attributes, None)
    finally:
        file.discard()
    return path


def write_pairs(
    path: Path,
    sources: list[np.ndarray],
    targets: list[np.ndarray],
    source_length: int,
    target_length: int,
    padding: int,
    vocab_size: int,
) -> Path:
    """A token file of source and target pairs."""
    row = source_length + target_length
    tokens = np.full((len(sources), row), padding)
    mask = np.zeros((len(sources), row), np.uint8)
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        tokens[i, : len(source)] = source
        tokens[i, source_length : source_length + len(target)] = target
        mask[i, source_length : source_length + len(target)] = 1
    file = TokenFile(path, np.dtype(np.uint16), masked=True)
    try:
        ends = np.append(np.arange(1, len(sources) + 1) * row, tokens.size + 1)
        file.append(np.append(tokens, padding), ends, np.append(mask, np.uint8(0)))
        attributes = {
            "format_version": 3,
            "packed_sequence_length": row,
            "source_length": source_length,
            "pad_token_id": padding,
            "vocab_size": vocab_size,
            "eos_token_id": 1,
            "tokenizer": "pairs",
            "source": "pairs",
        }
        file.commit(attributes, None)
    finally:
        file.discard()
    return path


def write_older_tokens(path: Path, tokens: np.ndarray, vocab_size: int) -> Path:
    """The same, as versions before checksums wrote it."""
    with h5py.File(path, "w") as file:
        file.create_dataset("tokens", data=tokens.astype(np.uint16), chunks=(32_768,), maxshape=(None,))
        file.create_dataset("document_offsets", data=np.array([0, len(tokens)], dtype=np.uint64))
        file.attrs.update({"format_version": 1, "max_token_id": int(tokens.max()), "vocab_size": vocab_size})
        file.attrs.update({"eos_token_id": vocab_size - 1, "tokenizer": "golden", "source": "golden"})
    return path


def command(*flags: object, ranks: int) -> list[str]:
    """`mpirun -n ranks mpzero train flags`."""
    program = str(BUILD / "bin" / "mpzero")
    return [*["mpirun", "--oversubscribe", "--bind-to", "none", "-n"], str(ranks), program, "train", *map(str, flags)]


def children_of(process: subprocess.Popen) -> list[str]:
    """The ids of the processes that `process` has started."""
    pgrep = ["pgrep", "-P", str(process.pid)]
    return subprocess.run(pgrep, capture_output=True, text=True, check=True).stdout.split()


def train(*flags: object, ranks: int = 1, timeout: float = 240, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs `command`, without mpirun for one rank; with `check`, a failure fails the test with the program's output."""
    words = command(*flags, ranks=ranks)
    if ranks == 1:
        words = words[words.index("-n") + 2 :]
    environment = {**os.environ, **ENVIRONMENT}
    result = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    if check:
        assert result.returncode == 0, f"{' '.join(words)}\n{result.stdout}\n{result.stderr}"
    return result


def num_gpus() -> int:
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return len(listed.stdout.splitlines()) if listed.returncode == 0 else 0


def metrics(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_until_ended(pids: list[str]) -> None:
    """Waits until no process of these ids runs any more."""

    def lives(pid: str) -> bool:
        status = Path(f"/proc/{pid}/status")
        return status.exists() and "State:\tZ" not in status.read_text()

    deadline = time.monotonic() + 30
    while any(lives(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)
