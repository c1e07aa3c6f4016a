"""The steps of container/Containerfile in root file systems of Debian 12, and a run in the second one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("image_on_debian.sh")


def reason_to_skip() -> str | None:
    if os.geteuid() != 0:
        return "needs root (chroot, namespaces)"
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is not installed"
    namespaces = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return f"namespaces are not allowed here: {namespaces.stderr.strip()}" if namespaces.returncode != 0 else None


@pytest.mark.nightly
def test_the_image_trains_without_a_compiler(tmp_path_factory):
    if reason := reason_to_skip():
        pytest.skip(reason)
    folder = Path(os.environ.get("MPZERO_IMAGE_FOLDER") or tmp_path_factory.mktemp("image"))
    result = subprocess.run([str(PROGRAM), str(folder)], capture_output=True, text=True, timeout=4 * 3600)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert "Training qwen3_tiny on 1 pod" in result.stdout
    mebibytes = int(result.stdout.split("The image has ")[1].split(" MiB")[0])
    # Without GPU kernels, as the script builds it unless it is told otherwise.
    assert mebibytes < 1024
