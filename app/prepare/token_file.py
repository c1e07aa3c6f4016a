"""Writes the HDF5 token file that the trainer reads: /tokens, /document_offsets, /tokens_xxh3 and attributes.

Checksums cover every byte. HDF5's own checksums cover the metadata (format version 1.10, and fixed-length strings,
because variable-length strings are in a heap without checksums) and each chunk (fletcher32, which readers verify).
/tokens_xxh3 contains the XXH3 of each block of tokens, which the trainer verifies. XXH3 is faster than fletcher32 and
also detects blocks of zeros and blocks from another position.
"""

from __future__ import annotations

import io
import json
import os
import socket
from pathlib import Path

import numpy as np
import xxhash

from . import PrepareError, shown
from .texts import DamagedText, text_of

FORMAT_VERSION = 1
LIBRARY_VERSION = "v110"  # oldest compatible HDF5; earlier formats have no checksums in the chunk index
CHUNK = 32_768  # elements; for each window, the trainer reads whole chunks
CHECKSUMS_CHUNK = 512  # elements; a window needs one or two checksums


class _Sink(io.FileIO):
    """A file object that hides write errors from HDF5, which would crash on them. `error` is the first error; later
    writes are ignored."""

    def __init__(self, path: Path):
        self.error: OSError | None = None
        super().__init__(path, "w+")

    def write(self, data) -> int:
        rest = memoryview(data)
        while len(rest) > 0 and self.error is None:
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0


class TokenFile:
    """Writes a temporary file next to the final path. `commit` moves it to that path; otherwise, it is removed."""

    def __init__(self, path: Path, dtype: np.dtype, chunk: int = CHUNK, mode: int | None = None, masked: bool = False):
        """mode: the file's permissions; None: the default. masked: True to write /loss_mask."""
        import h5py

        self.path = path
        self.num_tokens = 0
        self.num_documents = 0
        self.max_token_id = 0
        self._temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
            self._sink = _Sink(self._temporary)
            if mode is not None:
                os.fchmod(self._sink.fileno(), mode)
        except OSError as error:
            raise PrepareError(f"{path} cannot be written: {error.strerror or error}.") from error
        self._file = h5py.File(self._sink, "w", libver=(LIBRARY_VERSION, LIBRARY_VERSION))
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._tokens = self._create("tokens", 0, self._dtype, chunk)
        self._offsets = self._create("document_offsets", 1, np.uint64, chunk)
        self._checksums = self._create("tokens_xxh3", 0, np.uint64, CHECKSUMS_CHUNK)
        self._mask = self._create("loss_mask", 0, np.uint8, chunk) if masked else None
        self._mask_content = xxhash.xxh3_64()
        self._blocks = _Blocks(chunk * self._dtype.itemsize)
        self._content = xxhash.xxh3_64()

    def append(self, tokens: np.ndarray, document_ends: np.ndarray, mask: np.ndarray | None = None) -> None:
        """document_ends: end positions of documents in `tokens`, ascending. mask: 1 if a token is a target of the loss,
        else 0; None for a file without /loss_mask."""
        ends = document_ends + self.num_tokens
        self.append_tokens(tokens)
        self.append_ends(ends)
        if mask is not None:
            self._extend(self._mask, mask)
            self._mask_content.update(mask)
            self._check_written()

    def append_tokens(self, tokens: np.ndarray) -> None:
        tokens = np.ascontiguousarray(tokens, self._dtype)
        self._extend(self._tokens, tokens)
        self.num_tokens += len(tokens)
        self.max_token_id = max(self.max_token_id, int(tokens.max(initial=0)))
        stored = memoryview(tokens).cast("B")
        self._content.update(stored)
        self._blocks.add(stored)
        if len(self._blocks.checksums) >= CHECKSUMS_CHUNK:
            self._extend(self._checksums, self._blocks.take())
        self._check_written()

    def append_ends(self, document_ends: np.ndarray) -> None:
        """document_ends: counted from the first token of the file, ascending."""
        self._extend(self._offsets, document_ends.astype(np.uint64))
        self.num_documents += len(document_ends)
        self._check_written()

    def commit(self, attributes: dict[str, int | str], arguments: dict | None) -> None:
        """attributes: must include format_version unless it is 1. arguments: inputs of the file; None: unknown."""
        facts = {"format_version": FORMAT_VERSION, "max_token_id": self.max_token_id}
        self._blocks.finish()
        self._extend(self._checksums, self._blocks.take())
        self._checksums.attrs["block_size"] = np.uint64(self._tokens.chunks[0])
        _set_text(self._tokens.attrs, "xxh3_64", self._content.hexdigest())
        if self._mask is not None:
            _set_text(self._mask.attrs, "xxh3_64", self._mask_content.hexdigest())
        record = {} if arguments is None else {"arguments": json.dumps(arguments)}
        for name, value in {**facts, **attributes, **record}.items():
            if isinstance(value, str):
                _set_text(self._file.attrs, name, value)
            else:
                self._file.attrs[name] = value
        self._file.close()
        self._check_written()
        self._sink.close()
        _sync(self._temporary)
        os.replace(self._temporary, self.path)
        _sync(self.path.parent)

    def discard(self) -> None:
        """Removes the temporary file. No-op after commit."""
        self._file.close()
        self._sink.close()
        self._temporary.unlink(missing_ok=True)

    def _create(self, name: str, size: int, dtype: np.dtype, chunk: int):
        return self._file.create_dataset(name, (size,), dtype, maxshape=(None,), chunks=(chunk,), fletcher32=True)

    def _check_written(self) -> None:
        if self._sink.error is not None:
            reason = self._sink.error.strerror
            raise PrepareError(f"{self.path} cannot be written: {reason}; free some space or use another folder.")

    @staticmethod
    def _extend(dataset, values: np.ndarray) -> None:
        size = dataset.shape[0]
        dataset.resize((size + len(values),))
        dataset[size:] = values

    def _remove_leftovers(self) -> None:
        """Removes temporary files of killed processes on this host."""
        for leftover in self.path.parent.glob(f".{self.path.name}.{socket.gethostname()}.*.tmp"):
            if not Path("/proc", leftover.name.split(".")[-2]).exists():
                leftover.unlink(missing_ok=True)


class _Blocks:
    """The 64-bit XXH3 hash of each block of `size` bytes in a stream. The last block may be shorter."""

    def __init__(self, size: int):
        self.checksums: list[int] = []
        self._size = size
        self._hash = xxhash.xxh3_64()
        self._left = size

    def add(self, stored: memoryview) -> None:
        while len(stored) > 0:
            self._hash.update(stored[: self._left])
            taken = min(self._left, len(stored))
            stored, self._left = stored[taken:], self._left - taken
            if self._left == 0:
                self.finish()

    def finish(self) -> None:
        if self._left < self._size:
            self.checksums.append(self._hash.intdigest())
            self._hash.reset()
            self._left = self._size

    def take(self) -> np.ndarray:
        taken, self.checksums = np.array(self.checksums, np.uint64), []
        return taken


def _set_text(attributes, name: str, text: str) -> None:
    """Writes a fixed-length string."""
    import h5py

    stored = text.encode()
    attributes.create(name, np.bytes_(stored), dtype=h5py.string_dtype("utf-8", max(len(stored), 1)))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def arguments_of(path: Path) -> dict | None:
    """Returns the recorded inputs of a token file, or None if this program did not write the file."""
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            return json.loads(text_of(file, "arguments"))
    except DamagedText as error:
        raise PrepareError(f"{shown(path)} cannot be read: {error}.") from error
    except (OSError, KeyError, ValueError):
        return None


def is_foreign(path: Path) -> bool:
    """Returns True if the file is not a token file. A damaged HDF5 file may be a token file."""
    import h5py

    if not path.is_file() or not h5py.is_hdf5(path):
        return True
    try:
        with h5py.File(path, "r", locking=False) as file:
            return "tokens" not in file
    except OSError:
        return False
