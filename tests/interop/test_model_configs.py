"""config.json as the current transformers and version 4 write it: mpzero accepts it and reads the same model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

ORIGINAL = "original_max_position_embeddings"
LLAMA3_SCALING = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
# The published fields of models whose families mpzero supports.
PUBLISHED = {
    "llama-3": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    },
    "llama-3.2": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": LLAMA3_SCALING,
        "tie_word_embeddings": True,
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
    },
    "qwen2.5": {
        "model_type": "qwen2",
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131072,
        "max_window_layers": 28,
        "sliding_window": 131072,
        "use_sliding_window": False,
        "use_mrope": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
    },
    "qwen3": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
    },
}
PUBLISHED |= {
    "mistral-0.1": {
        "model_type": "mistral",
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    # Of the model cards of Qwen3, for 128k tokens, and of Yarn-Llama-2.
    "qwen3-yarn": {**PUBLISHED["qwen3"], "rope_scaling": {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 32768}},
    "yarn-llama": {
        **PUBLISHED["llama-3"],
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "yarn", "factor": 16.0, ORIGINAL: 4096, "finetuned": True},
    },
    "linear": {**PUBLISHED["qwen2.5"], "rope_scaling": {"rope_type": "linear", "factor": 2.5}},
    "dynamic": {**PUBLISHED["llama-3"], "rope_scaling": {"type": "dynamic", "factor": 4.0}},
}
PUBLISHED["mistral-0.3"] = {**PUBLISHED["mistral-0.1"], "vocab_size": 32768, "sliding_window": None, "rope_theta": 1e6}
# Fields that transformers 4 added with to_dict(): all defaults, including those of text generation.
VERSION_4 = {
    "_attn_implementation_autoset": False,
    "_name_or_path": "some/model",
    "add_cross_attention": False,
    "architectures": ["SomeForCausalLM"],
    "attention_dropout": 0.0,
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "chunk_size_feed_forward": 0,
    "cross_attention_hidden_size": None,
    "decoder_start_token_id": None,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "finetuning_task": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "hidden_act": "silu",
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "initializer_range": 0.02,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "length_penalty": 1.0,
    "max_length": 20,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "output_attentions": False,
    "output_hidden_states": False,
    "output_scores": False,
    "pad_token_id": None,
    "prefix": None,
    "problem_type": None,
    "pruned_heads": {},
    "remove_invalid_values": False,
    "repetition_penalty": 1.0,
    "return_dict": True,
    "return_dict_in_generate": False,
    "sep_token_id": None,
    "suppress_tokens": None,
    "task_specific_params": None,
    "temperature": 1.0,
    "tf_legacy_loss": False,
    "tie_encoder_decoder": False,
    "tokenizer_class": None,
    "top_k": 50,
    "top_p": 1.0,
    "torch_dtype": "bfloat16",
    "torchscript": False,
    "transformers_version": "4.51.0",
    "typical_p": 1.0,
    "use_bfloat16": False,
    "use_cache": True,
}


def check(programs, tmp_path: Path, fields: dict, text: str, length: int = 4096) -> None:
    """mpzero reads `text` as the model that transformers builds from `fields`: its parameters, and its frequencies for
    sequences of `length`."""
    (tmp_path / "config.json").write_text(text)
    seen = json.loads(programs.run("tests/read_model_config", tmp_path / "config.json", length).stdout)
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(fields)))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    assert seen["num_parameters"] == sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    assert seen["tie_word_embeddings"] == config.tie_word_embeddings
    assert seen["rms_norm_eps"] == config.rms_norm_eps
    rotary = type(model.model.rotary_emb)(config)
    rotary(torch.zeros(1), torch.tensor([[length - 1]]))  # where they depend on the length
    assert torch.allclose(torch.tensor(seen["rope_frequencies"]), rotary.inv_freq, rtol=1e-6)
    assert seen["rope_magnitude"] == pytest.approx(rotary.attention_scaling, rel=1e-12)


@pytest.mark.parametrize("name", PUBLISHED)
def test_version_4(programs, tmp_path: Path, name: str) -> None:
    fields = PUBLISHED[name]
    check(programs, tmp_path, fields, json.dumps({**VERSION_4, **fields}))


@pytest.mark.parametrize("use_diff", [False, True])
@pytest.mark.parametrize("name", PUBLISHED)
def test_today(programs, tmp_path: Path, name: str, use_diff: bool) -> None:
    fields = PUBLISHED[name]
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(fields)))
    check(programs, tmp_path, fields, config.to_json_string(use_diff=use_diff))


@pytest.mark.parametrize(
    "changes",
    [
        {"factor": 4.0},
        {"factor": None, ORIGINAL: 8192},
        {"factor": 0.5},
        {"factor": 40.0, ORIGINAL: 4096, "mscale": 1.0, "mscale_all_dim": 0.7},
        {"factor": 40.0, ORIGINAL: 4096, "mscale": 1.0, "mscale_all_dim": 0},
        {"factor": 8.0, ORIGINAL: 4096, "attention_factor": 1.25, "mscale": 3.0, "mscale_all_dim": 2.0},
        {"factor": 32.0, ORIGINAL: 4096, "truncate": False},
        {"factor": 16.0, ORIGINAL: 4096, "beta_fast": 20, "beta_slow": 2, "truncate": True},
        {"factor": 4.0, ORIGINAL: 16},
        {"factor": 4.0, ORIGINAL: 65536, "top": 8192},
    ],
)
def test_yarn(programs, tmp_path: Path, changes: dict) -> None:
    top = {ORIGINAL: changes.pop("top")} if "top" in changes else {}
    fields = {**PUBLISHED["qwen3"], **top, "rope_scaling": {"rope_type": "yarn", **changes}}
    check(programs, tmp_path, fields, json.dumps(fields))


@pytest.mark.parametrize("length", [4096, 4097])
def test_longrope_changes_with_the_length(programs, tmp_path: Path, length: int) -> None:
    """As Phi-3.5-mini has it."""
    scaling = {"type": "longrope", "short_factor": [1 + i / 96 for i in range(48)]}
    scaling["long_factor"] = [1 + i * i / 64 for i in range(48)]
    fields = {
        **PUBLISHED["llama-3"],
        "model_type": "phi3",
        "hidden_size": 3072,
        "num_key_value_heads": 32,
        "max_position_embeddings": 131072,
        ORIGINAL: 4096,
        "rope_theta": 10000.0,
        "rope_scaling": scaling,
    }
    check(programs, tmp_path, fields, json.dumps(fields), length)


@pytest.mark.parametrize("length", [8191, 8192, 8193, 20000])
def test_dynamic_scaling_follows_the_length(programs, tmp_path: Path, length: int) -> None:
    fields = PUBLISHED["dynamic"]
    check(programs, tmp_path, fields, json.dumps(fields), length)
