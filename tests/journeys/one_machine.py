"""A new user's checkout on one machine without a GPU, and what the user types there."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from own_build import own_build
from trainer import REPOSITORY

# Of this session, which a user's shell does not have.
DROPPED = (
    "BUILD_DIR", "OMP_NUM_THREADS", "MAX_STEPS", "DATASET", "CHECKPOINT_DIR", "MPZERO_ROOT",
    "MPZERO_GPU_ARCHITECTURES",
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    status: int
    stdout: str
    stderr: str

    @property
    def all(self) -> str:
        return self.stdout + self.stderr


class Machine:
    """The checkout is mpzero in the user's home. Its .venv and programs are those of the tests, and need nothing."""

    def __init__(self, home: Path):
        self.home = home
        self.checkout = home / "mpzero"
        self.checkout.mkdir()
        for name in ("app", "assets", "configs", "scripts", "singlenode", "sbatch", "uv.lock", "CMakePresets.json"):
            copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
            copy(REPOSITORY / name, self.checkout / name)
        (self.checkout / "train-singlenode.sh").symlink_to("singlenode/train-singlenode.sh")
        (self.checkout / ".venv").symlink_to(REPOSITORY / ".venv")
        own_build(self.checkout / "build")

    def environment(self, **variables: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in DROPPED}
        # Two ranks may have one core.
        return inherited | {"CUDA_VISIBLE_DEVICES": "", "OMPI_MCA_mpi_yield_when_idle": "1", **variables}

    def start(self, command: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=cwd or self.checkout,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ranks(self) -> list[int]:
        """The process ids of the ranks that train in this checkout."""
        program = f"{self.checkout}/build/bin/mpzero\0train\0".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes().startswith(program):
                    found.append(int(path.parent.name))
        return found

    def type(self, command: str, cwd: Path | None = None, **variables: str) -> Seen:
        """A line of the shell, in the checkout unless `cwd` says otherwise."""
        process = self.start(command, cwd, **variables)
        stdout, stderr = process.communicate(timeout=600)
        return Seen(process.returncode, stdout, stderr)
