"""GPU and CPU runs that bench/plan_runs.py predicts and then performs."""

from __future__ import annotations

from plan_against_measured import DEFAULTS

# Llama model with 3.6 billion parameters, which no calibration includes.
LLAMA_3B = {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24}
# The shape of Qwen3-1.7B, which no calibration includes.
QWEN3_2B = {"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16}


def row(name: str, **changed) -> dict:
    """Returns a row without measurements."""
    one = {**DEFAULTS, "name": name, "calibration": None, "steps": 24, "warm_up": 8, "limit": 40}
    unknown = changed.keys() - one.keys()
    assert not unknown, unknown
    return {**one, **changed}


def rows() -> list[dict]:
    two = {"gpus": 2}
    hosts = {"gpus": 2, "nodes": 2, "length": 512, "accumulation": 4, "steps": 15, "warm_up": 4}
    # Without clipping, updates start before the gradient norm is known.
    host_adamw = {"offload_optimizer": True, "clipping": 0, "steps": 20}
    large = {"model": "llama_3_8b", "model_flags": LLAMA_3B, "steps": 13, "warm_up": 4, "limit": 50}
    offloaded = {**large, **host_adamw, "steps": 13, "zero_stage": 3, "limit": 70}
    levels = {"layout": "two_levels"}
    # The host updates only parameters whose states do not fit into GPU memory.
    in_part = {"offload_ratio": "auto", "warm_up": 3, "steps": 9}
    large_7b = {"model": "qwen2_5_7b", "micro_batch": 2, "limit": 170}
    return [
        row("frozen_hosts_zero2_two_levels", **hosts, **levels),
        row("frozen_hosts_zero3_one_level", **hosts, zero_stage=3),
        row("frozen_qwen3_zero2_2gpu_mb4_t1024", **two, length=1024, vocab_size=128256),
        row("frozen_qwen3_zero0_mb4_t2048", zero_stage=0),
        row("frozen_qwen3_zero3_2gpu_mb1_t2048", **two, zero_stage=3, micro_batch=1),
        row("frozen_qwen3_zero3_2gpu_mb8_t512_x2", **two, zero_stage=3, micro_batch=8, length=512, accumulation=2),
        row("frozen_qwen3_recompute_full_mb8_t2048", micro_batch=8, recompute="full", steps=20),
        row("frozen_qwen3_host_adamw_mb4_t2048", **host_adamw),
        row(
            "frozen_qwen3_offload_param_2gpu_t1024", **two, **host_adamw, zero_stage=3, offload_param=True, length=1024
        ),
        row("frozen_llama_3b_zero2_mb2_t2048", **large, micro_batch=2),
        row("frozen_llama_3b_zero3_2gpu_mb1_t2048_x2", **two, **large, zero_stage=3, micro_batch=1, accumulation=2),
        row(
            "frozen_qwen2_5_zero1_2gpu_mb2_t1024", **two, model="qwen2_5_0_5b", zero_stage=1, micro_batch=2, length=1024
        ),
        row("frozen_qwen3_zero2_mb1_t512", micro_batch=1, length=512, steps=40, warm_up=15),
        row("frozen_qwen2_5_zero1_mb8_t1024", model="qwen2_5_0_5b", zero_stage=1, micro_batch=8, length=1024),
        row("frozen_qwen3_zero3_mb2_t4096_x2", zero_stage=3, micro_batch=2, length=4096, accumulation=2),
        row("frozen_qwen3_recompute_selective_mb8_t2048", micro_batch=8, recompute="selective", steps=20),
        row("frozen_qwen3_fp8_tensorwise_mb8_t2048", micro_batch=8, fp8="tensorwise"),
        row("frozen_qwen3_fp8_rowwise_mb8_t2048", micro_batch=8, fp8="rowwise"),
        row("frozen_qwen3_2b_zero2_mb4_t2048", model_flags=QWEN3_2B, steps=20),
        row("frozen_qwen3_2b_fp8_tensorwise_mb4_t2048", model_flags=QWEN3_2B, fp8="tensorwise", steps=20),
        row("frozen_qwen2_5_7b_host_ratio_auto_mb2_t2048", **{**host_adamw, **in_part, **large_7b}),
        row("frozen_llama_3b_host_adamw_mb4_t2048", **offloaded),
        row("frozen_llama_3b_host_adamw_mb4_t2048_clipped", **{**offloaded, "clipping": 1.0}),
        row("frozen_llama_3b_host_ratio_auto_mb8_t2048", **{**large, **host_adamw, **in_part}, micro_batch=8),
        row(
            "frozen_qwen3_2b_offload_param_mb4_t2048",
            **host_adamw,
            model_flags=QWEN3_2B,
            zero_stage=3,
            offload_param=True,
        ),
        row("frozen_qwen3_recompute_auto_mb32_t2048", micro_batch=32, recompute="auto", steps=14, warm_up=4),
        row("frozen_hosts_zero3_two_levels", **hosts, **levels, zero_stage=3),
        row("frozen_hosts_zero2_one_level", **hosts),
        row("frozen_hosts_zero2_two_levels_t2048_x1", **{**hosts, "length": 2048, "accumulation": 1}, **levels),
        row("frozen_hosts_zero3_one_level_mb1_x2", **{**hosts, "accumulation": 2}, zero_stage=3, micro_batch=1),
        row("frozen_qwen3_recompute_selective_2gpu_t2048", **two, zero_stage=3, recompute="selective"),
        row("frozen_llama_3b_zero3_host_adamw_2gpu_t2048", **two, **{**large, **host_adamw, "steps": 10}, zero_stage=3),
    ]


# A model of 7.6 million parameters, between the tiny and the next larger preset. No calibration includes it.
CPU_MID = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}


def cpu_rows(device: str, calibrations: list[str]) -> list[dict]:
    """Returns rows with two models and two dtypes, on one and two ranks. `calibrations`: for one and two ranks."""
    base = {"device": device, "length": 256, "steps": 28, "warm_up": 6, "clipping": 1.0}
    found = []
    for size, more in (("tiny", {}), ("mid", {"model_flags": CPU_MID, "vocab_size": 4096})):
        for dtype in ("bf16", "fp32"):
            for ranks, stage in ((1, 2), (2, 1), (2, 2), (2, 3)):
                name = f"cpu_{size}_{dtype}_{ranks}rank{'s' if ranks > 1 else ''}_zero{stage}"
                kind = {"model": "qwen3_tiny", "dtype": dtype, "gpus": 0, "ranks": ranks, "zero_stage": stage}
                found.append(row(name, **base, **more, **kind, calibration=calibrations[ranks - 1]))
    return found
