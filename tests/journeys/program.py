"""What a user types at mpzero, and what the user sees."""

from __future__ import annotations

import os
import subprocess

from trainer import BUILD, ENVIRONMENT


def mpzero(*words: object, program: str = "mpzero", **options) -> subprocess.CompletedProcess[str]:
    """Runs a built program without mpirun, and waits for it."""
    command = [str(BUILD / "bin" / program), *map(str, words)]
    environment = {**os.environ, **ENVIRONMENT, **options.pop("env", {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=240, **options)
