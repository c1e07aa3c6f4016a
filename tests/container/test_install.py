"""What container/install efa does with what Amazon's installer leaves behind; the installer is a stand-in."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def install_efa(folder: Path, plugin: str) -> subprocess.CompletedProcess:
    """Amazon's installer puts the file `plugin` below /opt, here `folder`/opt."""
    made = f'mkdir -p "$(dirname "$EFA_PARENT/{plugin}")" && touch "$EFA_PARENT/{plugin}"'
    program(folder / "aws-efa-installer/efa_installer.sh", made)
    archive = folder / "archive.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder / "aws-efa-installer", "aws-efa-installer")
    # Those that would change this machine.
    for name in ("apt-get", "rm"):
        program(folder / "bin" / name, "exit 0")
    program(folder / "bin/curl", f'while [[ $1 != --output ]]; do shift; done; cp {archive} "$2"')
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    return subprocess.run(
        [str(ROOT / "container/install"), "efa", "1.44.0", checksum],
        env={"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "EFA_PARENT": str(folder / "opt"), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="container/install asks for root")
@pytest.mark.parametrize(
    ("installed", "status"),
    [
        ("amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so", 0),
        ("amazon/ofi-nccl/lib64/libnccl-net.so", 0),
        ("amazon/efa/lib/libfabric.so.1", 2),
    ],
)
def test_an_image_for_efa_has_nccl_s_plugin(tmp_path, installed, status):
    result = install_efa(tmp_path, installed)
    assert result.returncode == status, result.stderr
    if status != 0:
        assert result.stderr.count("\n") == 1
        assert "libnccl-net" in result.stderr and "1.44.0" in result.stderr


def test_the_image_s_label_is_the_repository_s_licence():
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    labels = re.findall(r'licenses="([^"]+)"', (ROOT / "container/Containerfile").read_text())
    assert labels == ["Apache-2.0"]


def test_the_base_of_the_image_is_one_that_nccl_s_plugin_supports():
    assert re.findall(r"^ARG BASE=.*/(\S+)$", (ROOT / "container/Containerfile").read_text(), re.M) == ["ubuntu:24.04"]
