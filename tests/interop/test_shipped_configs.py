"""The ds_config.json files that are shipped work with DeepSpeed, too: its schedules know each of their keys."""

import inspect
import json
import subprocess
from pathlib import Path

import pytest
from trainer import BUILD

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("ds_config*.json"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_deepspeeds_schedule_knows_each_key(path):
    schedules = pytest.importorskip("deepspeed.runtime.lr_schedules")
    scheduler = json.loads(path.read_text()).get("scheduler")
    if scheduler is None:
        return
    known = inspect.signature(getattr(schedules, scheduler["type"])).parameters
    assert set(scheduler["params"]) <= set(known)


@pytest.mark.parametrize(("recipe", "model", "gpus"), [("qwen3_0_6b", "qwen3_0_6b", 1), ("llama3_8b", "llama_3_8b", 4)])
def test_the_recipes_of_fine_tuning_fit_as_they_are(recipe, model, gpus):
    """docs/finetuning.md: without recomputation on H100 GPUs of 80 GB, at 4,096 tokens."""
    config = CONFIGS[0].parent / f"ds_config_sft_{recipe}.json"
    flags = ["--gpu=H100", f"--nproc_per_node={gpus}", f"--model_type={model}", f"--deepspeed_config={config}"]
    words = [BUILD / "bin/mpzero", "plan", *flags, "--seq_length=4096", "--recompute=none"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
