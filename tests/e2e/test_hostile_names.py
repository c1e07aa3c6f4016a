"""Names of folders that would move a terminal's cursor or begin a line: every command prints them escaped."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from golden_run import WITHOUT_ZERO, saved_by_deepspeed
from trainer import BUILD

pytestmark = pytest.mark.e2e

EVIL = b"a\x1b]0;title\x07\x1b[2J\nforged: line\xe2\x80\xae \xff"


def test_no_command_prints_them_raw(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    whole, broken = os.path.join(folder, EVIL), os.path.join(folder, EVIL + b"-7steps")
    shutil.copytree(os.fsencode(saved_by_deepspeed(WITHOUT_ZERO) / "global_step6"), whole)
    os.mkdir(broken)
    (tmp_path / "latest").write_bytes(EVIL + b"\n")
    checkpoint = [BUILD / "bin" / "mpzero", "checkpoint"]
    zero_to_fp32 = [BUILD / "bin" / "zero_to_fp32"]
    for command in (
        [*checkpoint, "ls", folder],
        [*checkpoint, "verify", folder],
        [*checkpoint, "prune", folder, "--keep_last=1", "--dry_run"],
        [*checkpoint, "show", whole],
        [*checkpoint, "diff", whole, broken],
        [*zero_to_fp32, whole, os.path.join(folder, b"out" + EVIL)],
        [*zero_to_fp32, folder, os.path.join(folder, b"out"), "-t", "other"],
        [BUILD / "bin" / "mpzero", "top", whole],
        [BUILD / "bin" / "mpzero", "generate", whole, "--prompt=a"],
        [BUILD / "bin" / "mpzero", "train", b"--resume_from_checkpoint=" + whole, b"--train_data=" + broken],
    ):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)
        shown = done.stdout.decode()  # which is UTF-8
        assert rb"\x1b[2J\nforged" in done.stdout, shown
        assert all(c.isprintable() for c in shown.replace("\n", "")), shown
        assert not any(line.startswith("forged") for line in shown.splitlines()), shown
