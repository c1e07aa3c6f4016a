"""A build folder for one test, so that no script of the checkout writes to the one that all tests share."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trainer import BUILD, REPOSITORY


def reason_to_skip() -> str | None:
    """Why train-singlenode.sh would have something to install or to build, or None."""
    if not (BUILD / "bin/mpzero").exists():
        return f"{BUILD} has no mpzero: run ./train-singlenode.sh --build-only"
    stamp = REPOSITORY / ".venv/mpzero-synced"
    if not stamp.exists() or "cuda" not in stamp.read_text().split():
        return f"{stamp} lacks the group cuda, which ./test.sh installs"
    return None


def own_build(folder: Path) -> Path:
    """A build folder at `folder` with links to the built programs.

    The scripts find it configured for this lock file with GPU kernels and up to date, so they have nothing to build.
    """
    (folder / "bin").mkdir(parents=True)
    for name in ("mpzero", "zero_to_fp32"):
        (folder / "bin" / name).symlink_to((BUILD / "bin" / name).resolve())
    lock = hashlib.sha256((REPOSITORY / "uv.lock").read_bytes()).hexdigest()
    (folder / "mpzero-configured").write_text(f"{lock} off all\n")
    (folder / "build.ninja").write_text("build mpzero zero_to_fp32: phony\n")
    return folder
