"""The HDF5 token file that the trainer reads: /tokens, /document_offsets and attributes."""

from __future__ import annotations

import io
import json
import os
import socket
from pathlib import Path

import numpy as np

from . import PrepareError

FORMAT_VERSION = 1
CHUNK = 32_768  # elements


class _Sink(io.FileIO):
    """A file for HDF5, which crashes over files that it cannot write to their end: the first error is kept in `error`,
    and what comes after it is swallowed."""

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
    """Writes a token file beside its final place; `commit` moves it there, anything else leaves nothing behind."""

    def __init__(self, path: Path, dtype: np.dtype):
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
        except OSError as error:
            raise PrepareError(f"{path} cannot be written: {error.strerror or error}.") from error
        self._file = h5py.File(self._sink, "w")
        grows = {"maxshape": (None,), "chunks": (CHUNK,)}
        self._tokens = self._file.create_dataset("tokens", (0,), dtype, **grows)
        self._offsets = self._file.create_dataset("document_offsets", (1,), np.uint64, **grows)

    def append(self, tokens: np.ndarray, document_ends: np.ndarray) -> None:
        """document_ends: where documents end within `tokens`, ascending."""
        self._extend(self._tokens, tokens)
        self.max_token_id = max(self.max_token_id, int(tokens.max(initial=0)))
        self._extend(self._offsets, (document_ends + self.num_tokens).astype(np.uint64))
        self.num_tokens += len(tokens)
        self.num_documents += len(document_ends)
        self._check_written()

    def commit(self, attributes: dict[str, int | str], arguments: dict) -> None:
        facts = {"format_version": FORMAT_VERSION, "max_token_id": self.max_token_id}
        self._file.attrs.update({**facts, **attributes, "arguments": json.dumps(arguments)})
        self._file.close()
        self._check_written()
        self._sink.close()
        _sync(self._temporary)
        os.replace(self._temporary, self.path)
        _sync(self.path.parent)

    def discard(self) -> None:
        """Does nothing after commit."""
        self._file.close()
        self._sink.close()
        self._temporary.unlink(missing_ok=True)

    def _check_written(self) -> None:
        if self._sink.error is not None:
            reason = self._sink.error.strerror
            raise PrepareError(f"{self.path} cannot be written: {reason}; free some space or choose another folder.")

    @staticmethod
    def _extend(dataset, values: np.ndarray) -> None:
        size = dataset.shape[0]
        dataset.resize((size + len(values),))
        dataset[size:] = values

    def _remove_leftovers(self) -> None:
        """Of runs on this machine that were killed."""
        for leftover in self.path.parent.glob(f".{self.path.name}.{socket.gethostname()}.*.tmp"):
            if not Path("/proc", leftover.name.split(".")[-2]).exists():
                leftover.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def arguments_of(path: Path) -> dict | None:
    """What an existing token file was made from; None if it is no token file of ours."""
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            return json.loads(file.attrs["arguments"])
    except (OSError, KeyError, ValueError):
        return None
