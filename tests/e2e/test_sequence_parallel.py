"""sequence_parallel_size: ranks that share sequences compute what one rank computes, in fp32 within 1e-5."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_run import MODEL, VOCAB_SIZE, TinyRun
from trainer import write_tokens

pytestmark = pytest.mark.e2e

STEPS = "--max_steps=5"
# One KV head for two query heads, which 4 ranks repeat.
FAMILIES = {
    "qwen3": {},
    "mqa": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_key_value_heads": 1},
    "olmo2": {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "tie_word_embeddings": False},
}


def run_of(folder: Path, sequence_ranks: int, ranks: int, stage: int = 2, family: str = "qwen3", **keys) -> TinyRun:
    """A global batch of 8 sequences."""
    groups = ranks // sequence_ranks
    micro_batch = 2 if groups <= 2 else 1
    config = {
        "sequence_parallel_size": sequence_ranks,
        "gradient_accumulation_steps": 8 // (groups * micro_batch),
        **keys,
    }
    run = TinyRun(folder, ranks=ranks, stage=stage, micro_batch=micro_batch, config=config)
    (folder / "tiny.json").write_text(json.dumps({**MODEL, **FAMILIES[family]}))
    return run


def steps_of(run: TinyRun, *flags: object) -> list[tuple[float, ...]]:
    validation = (f"--validation_data={run.data}", "--validation_freq=2", "--validation_sequences=9")
    run.train(STEPS, *validation, *flags)
    keys = ("loss", "grad_norm", "tokens", "validation_loss")
    return [tuple(step[key] for key in keys if key in step) for step in run.metrics()]


def assert_same(made: list[tuple[float, ...]], expected: list[tuple[float, ...]]) -> None:
    assert made == [pytest.approx(step, rel=1e-5) for step in expected]


@pytest.mark.parametrize(
    ("family", "layouts"),
    [
        # Groups of 2 and of 4 ranks; all stages.
        ("qwen3", ((2, 2, 0), (2, 4, 3), (4, 4, 2), (2, 2, 1))),
        ("mqa", ((4, 4, 2),)),
        ("olmo2", ((2, 4, 3),)),
    ],
)
def test_ranks_that_share_sequences_compute_what_one_computes(tmp_path: Path, family: str, layouts: tuple) -> None:
    expected = steps_of(run_of(tmp_path / "one", 1, 1, family=family))
    for sequence_ranks, ranks, stage in layouts:
        folder = tmp_path / f"{sequence_ranks}of{ranks}"
        assert_same(steps_of(run_of(folder / str(stage), sequence_ranks, ranks, stage, family)), expected)


@pytest.mark.parametrize(
    ("flags", "zero"),
    [
        (["--recompute=selective"], {"stage": 3}),
        (["--recompute=full"], {"stage": 2, "offload_optimizer": {"device": "cpu"}}),
        (["--recompute=tiled"], {"stage": 3, "zero_hpz_partition_size": 2}),
    ],
)
def test_with_recomputation_and_two_levels(tmp_path: Path, flags: list[str], zero: dict) -> None:
    expected = steps_of(run_of(tmp_path / "one", 1, 1))
    assert_same(steps_of(run_of(tmp_path / "shared", 2, 4, zero_optimization=zero), *flags), expected)


def masked_data(path: Path) -> None:
    """Rows of 16 tokens with documents that their halves and quarters cut, and masked targets."""
    rng = np.random.default_rng(1)
    inner = np.arange(1, 2000)
    ends = inner[(inner % 16 == 0) | (rng.random(1999) < 0.2)]
    mask = (rng.random(2001) < 0.3).astype(np.uint8)
    tokens = rng.integers(0, VOCAB_SIZE, 2001)
    write_tokens(path, tokens, VOCAB_SIZE, np.concatenate([ends, [2000, 2001]]), mask, mask_row=16)


def test_documents_and_loss_masks_count_as_on_one_rank(tmp_path: Path) -> None:
    made = {}
    for name, sequence_ranks, ranks in (("one", 1, 1), ("two", 2, 2), ("four", 4, 4)):
        run = run_of(tmp_path / name, sequence_ranks, ranks)
        run.data.unlink()
        masked_data(run.data)
        made[name] = steps_of(run, "--document_mask=true")
    assert_same(made["two"], made["one"])
    assert_same(made["four"], made["one"])


def test_resumes_with_another_number_of_ranks_for_a_sequence(tmp_path: Path) -> None:
    expected = steps_of(run_of(tmp_path / "one", 1, 1))
    for saved, resumed in (((2, 4), (1, 2)), ((1, 1), (4, 4))):
        folder = tmp_path / f"{saved[0]}to{resumed[0]}"
        run_of(folder, *saved, stage=3).train("--max_steps=2", "--validation_freq=0")
        result = run_of(folder, *resumed)
        made = steps_of(result)
        assert_same(made[2:], expected[2:])


def test_adapters_train_on_shared_sequences(tmp_path: Path) -> None:
    flags = ("--lora_r=4", "--lora_alpha=8")
    expected = steps_of(run_of(tmp_path / "one", 1, 1), *flags)
    assert_same(steps_of(run_of(tmp_path / "shared", 2, 2, stage=3), *flags), expected)


@pytest.mark.parametrize(
    ("ranks", "size", "length", "flags", "named"),
    [
        (2, 4, 16, [], "2 ranks"),
        (3, 3, 15, [], "num_attention_heads 4"),
        (2, 2, 15, [], "--seq_length 15"),
        (2, 2, 16, ["--lora_r=4", "--lora_alpha=8", "--lora_dropout=0.1"], "--lora_dropout 0.1"),
    ],
)
def test_what_cannot_be_split_is_refused(
    tmp_path: Path, ranks: int, size: int, length: int, flags: list[str], named: str
) -> None:
    run = TinyRun(tmp_path, ranks=ranks, seq_length=length, config={"sequence_parallel_size": size})
    result = run.train(STEPS, *flags, check=False)
    assert result.returncode == 2
    message = " ".join(result.stderr.split())
    assert "ds_config.json" in message
    assert f"sequence_parallel_size {size}" in message
    assert named in message
    assert not run.checkpoints.exists()
