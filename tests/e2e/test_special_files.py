"""A FIFO, a device without an end or a folder where a flag takes a file: refused by name, and nothing waits for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from golden_run import WITHOUT_ZERO, saved_by_deepspeed
from tiny_run import TinyRun
from trainer import BUILD, ENVIRONMENT

pytestmark = pytest.mark.e2e

MPZERO = BUILD / "bin" / "mpzero"
KINDS: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
}


def words_of(flag: str, path: Path, run: TinyRun) -> list[object]:
    """The command whose `flag` is `path`, the others being right."""
    saved = saved_by_deepspeed(WITHOUT_ZERO)
    if flag in ("calibration", "prices"):
        return [
            MPZERO,
            "plan",
            f"--model_config={run.folder / 'tiny.json'}",
            "--compare",
            "--gpu=H200",
            f"--{flag}={path}",
        ]
    if flag == "generate":
        return [MPZERO, "generate", saved, "--prompt_tokens=1", f"--model_config={path}"]
    if flag == "zero_to_fp32":
        return [BUILD / "bin" / "zero_to_fp32", saved, run.folder / "out", f"--model_config={path}"]
    if flag == "top":
        return [MPZERO, "top", path, "--once"]
    flags = [given for given in run.flags() if not given.startswith(f"--{flag}=")]
    return [MPZERO, "train", "--dry_run", *flags, f"--{flag}={path}"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_flag_that_takes_a_file(tmp_path: Path, kind: str) -> None:
    run = TinyRun(tmp_path / "run", ranks=1)
    path = tmp_path / "special"
    KINDS[kind](path)
    flags = ["model_config", "deepspeed_config", "train_data", "validation_data", "init_from", "resume_from_checkpoint"]
    for flag in [*flags, "calibration", "prices", "generate", "zero_to_fp32", "top"]:
        done = subprocess.run(
            [*map(str, words_of(flag, path, run))],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, **ENVIRONMENT},
        )
        assert done.returncode == 2, (flag, done)
        assert str(path) in done.stderr, (flag, done)


def test_zero_to_fp32_makes_no_folder_with_the_name_of_a_file(tmp_path: Path) -> None:
    """As older versions of DeepSpeed's script took it: `zero_to_fp32.py . pytorch_model.bin`."""
    words = [BUILD / "bin" / "zero_to_fp32", saved_by_deepspeed(WITHOUT_ZERO)]
    for name in ("pytorch_model.bin", "model.safetensors", "weights.pt"):
        done = subprocess.run([*words, tmp_path / name], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and str(tmp_path / name) in done.stderr, done
        assert not (tmp_path / name).exists()
    (tmp_path / "weights.pt").mkdir()
    subprocess.run([*words, tmp_path / "weights.pt"], capture_output=True, check=True)
