"""completion.bash: what the tab key offers."""

import subprocess
from pathlib import Path

import pytest

COMPLETION = Path(__file__).resolve().parents[2] / "scripts/completion.bash"


@pytest.mark.parametrize(
    ("words", "offered", "other"),
    [
        (["mpzero", "do"], "doctor", "plan"),
        (["mpzero", "train", "--"], "--learning_rate", "--quick"),
        (["mpzero", "doctor", "--"], "--quick", "--learning_rate"),
        (["mpzero", "plan", "--in"], "--instance", "--device"),
        (["mpzero", "plan", "--le"], "--learning_rate", "--instance"),
        (["mpzero", "generate", "--"], "--prompt", "--learning_rate"),
        (["mpzero", "top", "--"], None, "--learning_rate"),
        (["mpzero", "train", "--bf16", ""], "true", "--fp8"),
        (["./train-singlenode.sh", "doctor", "--le"], "--learning_rate", "--quick"),
        (["./train-singlenode.sh", "--bu"], "--build-only", "--bucket_size_mb"),
        (["mpzero", "checkpoint", ""], "verify", "train"),
        (["mpzero", "help", ""], "doctor", "verify"),
        (["mpzero", "train", "--model_type", "qwen3_t"], "qwen3_tiny", "qwen3_0_6b"),
    ],
)
def test_each_command_has_its_own_flags(words, offered, other):
    script = (
        'source "$1"; COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _mpzero "$2"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    result = subprocess.run(["bash", "-c", script, "-", COMPLETION, *words], capture_output=True, text=True, check=True)
    found = result.stdout.split()
    assert (offered in found or (offered is None and found == [])) and other not in found
