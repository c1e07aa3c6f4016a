"""Replaces files atomically: readers see either the old file or the new file, even after a crash."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields an empty temporary file with the same suffix, which replaces `path` at the end or is removed on an error.
    A symbolic link at `path` is replaced, not followed. Devices are refused.

    Raises: OSError
    """
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise OSError(errno.EINVAL, "cannot replace a device", str(path))
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix)
    try:
        os.fchmod(descriptor, 0o666 & ~umask())
        yield Path(name)
        os.fsync(descriptor)
        os.replace(name, path)
        sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Replaces a file with `text`. Does not follow a link that another user substituted for the temporary file.

    Raises: OSError
    """
    with replacing(path) as file:
        descriptor = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)


def sync_folder(folder: Path) -> None:
    """Makes the rename durable, if the file system supports fsync on folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
