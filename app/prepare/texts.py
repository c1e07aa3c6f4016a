"""Reads text attributes of an HDF5 file that may be damaged.

Variable-length strings, h5py's default, are stored in a heap. HDF5 does not validate the sizes in the heap, so a
corrupted byte may crash or hang HDF5. A separate process (this file) with a CPU time limit therefore reads them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

SECONDS = 5  # CPU time


class DamagedText(ValueError):
    pass


def text_of(file, name: str) -> str:
    """Returns a string attribute of an open h5py.File. Raises KeyError if missing, ValueError if not a string."""
    import h5py

    kind = file.attrs.get_id(name).get_type()
    if not isinstance(kind, h5py.h5t.TypeStringID):
        raise ValueError(f"attribute '{name}' is not a string")
    if not kind.is_variable_str():
        value = file.attrs[name]
        return value.decode() if isinstance(value, bytes) else str(value)
    command = [sys.executable, __file__, file.filename, name]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if process.returncode != 0:
        raise DamagedText(f"its attribute '{name}' is damaged: prepare the file again (--overwrite)")
    return process.stdout.decode()


def main(path: Path, name: str) -> None:
    import h5py

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with h5py.File(path, "r", locking=False) as file:
        value = file.attrs[name]
    sys.stdout.buffer.write(value if isinstance(value, bytes) else value.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
