"""Compares with transformers, safetensors and h5py.

Run: `uv sync --group interop --group dev`, build, then `uv run pytest tests/interop`. BUILD_DIR names another build
folder than build/. Skipped if the packages are missing.
"""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD_DIR", ROOT / "build"))


class Programs:
    """The built programs; each call returns the finished process."""

    def run(self, program, *arguments, check=True):
        path = BUILD / program
        if not path.exists():
            pytest.fail(f"{path} is not built")
        done = subprocess.run([path, *map(str, arguments)], capture_output=True, check=False)
        if check:
            assert done.returncode == 0, done.stderr.decode()
        return done

    def zero_to_fp32(self, *arguments, check=True):
        return self.run("bin/zero_to_fp32", *arguments, check=check)

    def make_checkpoint(self, weights, checkpoint_dir, tag="tiny-5steps", ranks=3):
        self.run("tests/make_checkpoint", weights, checkpoint_dir, tag, ranks)
        return checkpoint_dir / tag

    def read_safetensors(self, folder, check=True):
        return self.run("tests/read_safetensors", folder, check=check)


@pytest.fixture(scope="session")
def programs():
    return Programs()


@pytest.fixture(scope="session", params=["qwen3-tied", "llama-untied", "qwen2-tied"])
def model(request, tmp_path_factory):
    """A tiny model of transformers with random weights, and the folder that it was saved to."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 331,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    }
    torch.manual_seed(7)
    if request.param == "qwen3-tied":
        config = transformers.Qwen3Config(**sizes, head_dim=16, tie_word_embeddings=True)
        made = transformers.Qwen3ForCausalLM(config)
    elif request.param == "qwen2-tied":
        config = transformers.Qwen2Config(**sizes, tie_word_embeddings=True)
        made = transformers.Qwen2ForCausalLM(config)
    else:
        config = transformers.LlamaConfig(**sizes, tie_word_embeddings=False)
        made = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    folder = tmp_path_factory.mktemp(request.param)
    made.save_pretrained(folder)
    return made, folder
