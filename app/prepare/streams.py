"""Opens files as streams of bytes and decompresses them if necessary. Errors contain the file name."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import xxhash

from . import PrepareError, shown

BLOCK = 1 << 20  # bytes per read
COMPRESSIONS = {".gz": "gzip", ".zst": "Zstandard"}
_MAGIC = {
    "gzip": (b"\x1f\x8b",),
    # A frame, or one of the 16 types of skippable frames.
    "Zstandard": (b"\x28\xb5\x2f\xfd", *(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))),
}


def compression_of(name: str) -> str | None:
    return COMPRESSIONS.get(Path(name.lower()).suffix)


class _Hashed(io.RawIOBase):
    """A raw file object that hashes the bytes as they are read."""

    def __init__(self, path: Path):
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self._hash = xxhash.xxh3_128()
        self.length = 0  # bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._file.readinto(buffer)
        self._hash.update(memoryview(buffer)[:count])
        self.length += count
        return count

    def digest(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class Stream(io.RawIOBase):
    """The decompressed bytes of a file. `length` and `digest()` refer to the bytes of the file read so far, before
    decompression."""

    def __init__(self, path: Path):
        self._path = path
        self._compression = compression_of(path.name)
        try:
            self._hashed = _Hashed(path)
        except OSError as error:
            raise unreadable(path, error) from error
        buffered = io.BufferedReader(self._hashed, BLOCK)
        try:
            self._inner = _unpacked(buffered, self._compression)
            if self._compression is not None:
                self._check_magic(buffered)
        except OSError as error:
            raise unreadable(path, error) from error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        try:
            block = self._inner.read(len(buffer))
        except EOFError as error:
            raise self._cut_off() from error
        except (OSError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise unreadable(self._path, error) from error
            if "Truncated" in str(error):
                raise self._cut_off() from error
            reason = str(error).rstrip(".")
            raise PrepareError(
                f"{shown(self._path)} cannot be decompressed: its {self._compression} data is damaged ({reason}): "
                "copy or download it again."
            ) from error
        buffer[: len(block)] = block
        return len(block)

    @property
    def length(self) -> int:
        return self._hashed.length

    def digest(self) -> str:
        return self._hashed.digest()

    def close(self) -> None:
        if not self.closed:
            self._hashed.close()
        super().close()

    def _check_magic(self, buffered: io.BufferedReader) -> None:
        head = buffered.peek(8)
        if head and not any(head.startswith(magic[: len(head)]) for magic in _MAGIC[self._compression]):
            raise PrepareError(
                f"{shown(self._path)} is not a {self._compression} file despite its extension: rename the file."
            )

    def _cut_off(self) -> PrepareError:
        return PrepareError(
            f"{shown(self._path)} ends in the middle of its {self._compression} data: copy or download it again."
        )


def open_stream(path: Path) -> io.BufferedReader:
    """Opens a file for buffered reading of its decompressed bytes. `.raw` of the result is the Stream."""
    return io.BufferedReader(Stream(path), BLOCK)


def unreadable(path: Path, error: OSError) -> OSError:
    """Returns the error with the file's name."""
    return OSError(error.errno, error.strerror or str(error), str(path))


def _unpacked(raw: io.BufferedReader, compression: str | None):
    if compression == "gzip":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if compression == "Zstandard":
        import pyarrow

        return pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd")
    return raw
