"""Creates Hugging Face transformers models from mpzero's presets, for comparisons."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


def make_model(config: dict, dtype: torch.dtype, attention: str = "sdpa") -> PreTrainedModel:
    """Returns a model with random weights on the default device, ready to train. `config`: content of config.json."""
    parsed = CONFIG_MAPPING[config["model_type"]].from_dict(config)
    parsed.use_cache = False
    model = AutoModelForCausalLM.from_config(parsed, attn_implementation=attention, dtype=dtype)
    model.train()
    return model
