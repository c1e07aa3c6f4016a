"""The one writer of files that are replaced: readers see the old file or the new one, and so they do after a crash."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives an empty file to write to, with the same suffix. At the end it replaces `path`, which is never written
    through a symbolic link; an error removes it.

    Raises: OSError
    """
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


def sync_folder(folder: Path) -> None:
    """So that the new name survives a crash, where the file system can do that."""
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
