"""The commands of the README's first run, as they are written, in a copy of the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from documents import ROOT, code_blocks, section, text_of
from own_build import own_build, reason_to_skip

STEPS = 6

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or ""),
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the commands use; the Python environment and the programs are this checkout's."""
    root = tmp_path / "mpzero"
    root.mkdir()
    for name in ("app", "assets", "configs", "scripts", "singlenode", "uv.lock", "CMakePresets.json"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    (root / "train-singlenode.sh").symlink_to("singlenode/train-singlenode.sh")
    (root / ".venv").symlink_to(ROOT / ".venv")
    own_build(root / "build")
    return root


def test_the_first_run(checkout: Path) -> None:
    dropped = ("BUILD_DIR", "OMP_NUM_THREADS", "MPZERO_GPU_ARCHITECTURES")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    # No GPU, as on a laptop, and few steps. Two ranks may have one core.
    environment |= {"CUDA_VISIBLE_DEVICES": "", "MAX_STEPS": str(STEPS), "CHECKPOINT_FREQ": "3"}
    environment |= {"OMPI_MCA_mpi_yield_when_idle": "1"}
    blocks = code_blocks(section(text_of("README.md"), "First run"))
    commands = [line for block in blocks for line in block.splitlines()]
    assert commands[0] == "./train-singlenode.sh" and len(commands) == 5
    outputs = []
    # The first command again has nothing to do.
    for command in [*commands, commands[0]]:
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
        outputs.append(result.stdout)
    assert f"step {STEPS} of {STEPS} is saved" in outputs.pop()
    folder = checkout / "checkpoints/first_run"
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, STEPS + 1))
    # What the README says that one sees at the end.
    assert "Loss plot:   checkpoints/first_run/loss.png" in outputs[0]
    assert "Report:      checkpoints/first_run/report.html" in outputs[0]
    assert (checkout / "checkpoints/first_run/report.html").stat().st_size > 1_000_000
    # With the text of step 0, and that of the last one, which the command shows again.
    before, after = re.findall(r"training:\n((?:  \| .*\n)+)and after training:\n((?:  \| .*\n)+)", outputs[0])[0]
    assert before != after
    assert outputs[1].rstrip("\n") == after.replace("\n  | ", "\n").removeprefix("  | ").rstrip("\n")
    shown = [line.strip() for line in outputs[0].splitlines()]
    assert commands[1] in shown and commands[3] in shown
    assert f"qwen3_tiny-{STEPS}steps" in outputs[2] and "complete, latest" in outputs[2]
    assert (folder / "fp32/model.safetensors").stat().st_size > 1_000_000
    assert (checkout / "loss.png").read_bytes().startswith(b"\x89PNG")
