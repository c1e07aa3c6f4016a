"""What bench/measures.py computes from configs, metrics files and logs."""

from __future__ import annotations

import json
from pathlib import Path

import measures
import pytest


@pytest.mark.parametrize(
    ("model", "seq_length", "gigaflops"),
    [
        # Published per-token figures: causal attention counted once, the head counted.
        ("llama_3_8b", 8192, 51.5),
        ("qwen3_0_6b", 1024, 3.93),
        ("qwen3_0_6b", 4096, 4.99),
    ],
)
def test_flops_per_token(model: str, seq_length: int, gigaflops: float) -> None:
    flops = measures.flops_per_token(measures.read_model(model), seq_length)
    assert flops / 1e9 == pytest.approx(gigaflops, abs=0.05 if gigaflops > 10 else 0.005)


def test_flops_where_the_config_leaves_sizes_out() -> None:
    """head_dim and the number of key-value heads have defaults. Counted by hand: 2 layers of 4 x 8 x 8 + 3 x 8 x 10."""
    config = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 10,
        "vocab_size": 5,
    }
    assert measures.flops_per_token(config, 7) == 6 * (2 * (256 + 240) + 40) + 6 * 2 * 8 * 7


def test_another_vocabulary_changes_the_head_alone() -> None:
    own = measures.flops_per_token(measures.read_model("qwen3_0_6b"), 16)
    smaller = measures.flops_per_token(measures.read_model("qwen3_0_6b", 128256), 16)
    assert own - smaller == 6 * (151936 - 128256) * 1024


def line(step: int, seconds: float, **more) -> dict:
    return {"step": step, "loss": 10.0 - step, "tokens": 4096 * step, "step_seconds": seconds, **more}


def test_summary() -> None:
    steps = [line(1, 9.0, forward_seconds=1.0, peak_memory_bytes=2**31, peak_allocated_bytes=2**30)]
    steps += [
        line(2, 0.2, forward_seconds=0.04, exposed_communication_seconds=0.001, peak_memory_bytes=3 * 2**30),
        line(3, 0.4, forward_seconds=0.06, exposed_communication_seconds=0.006, peak_memory_bytes=2**30),
        line(4, 0.1, forward_seconds=0.05, exposed_communication_seconds=0.004, peak_memory_bytes=2**30),
    ]
    result = measures.summarize(steps, ranks=2, warm_up=1, flops=989e6)
    assert result["step_ms"] == 200
    assert result["measured_steps"] == 3
    assert result["tokens_per_second_per_gpu"] == 2048 / 0.2
    # 10,240 tokens a second of 989 MFLOP each, of 989 TFLOP/s.
    assert result["mfu_percent"] == pytest.approx(1.0, abs=0.05)
    assert result["forward_ms"] == 50
    assert result["exposed_communication_ms"] == 4
    assert result["exposed_percent"] == 2
    assert result["peak_memory_gib"] == 3
    assert result["peak_allocated_gib"] == 1
    assert result["losses"] == [9.0, 8.0, 7.0, 6.0]


def test_medians_know_bytes_between_nodes_and_no_lists() -> None:
    lines = [line(n, 0.5, internode_bytes=n * 1_000_000, rank_seconds=[0.1, 0.2]) for n in (1, 2, 3, 5)]
    found = measures.medians(lines, warm_up=1)
    assert found == {"measured_steps": 3, "step_ms": 500, "internode_megabytes": 3}
    assert measures.medians(lines, warm_up=4) == {}


def test_summary_of_a_resumed_run() -> None:
    """The first line of its file may be any step; `tokens` counts from the very first one."""
    result = measures.summarize([line(11, 0.5), line(12, 0.5)], ranks=1, warm_up=0, flops=1.0)
    assert result["tokens_per_second_per_gpu"] == 8192


def test_summary_of_a_run_that_ended_during_its_warm_up() -> None:
    result = measures.summarize([line(1, 1.0)], ranks=1, warm_up=10, flops=1.0)
    assert "step_ms" not in result
    assert result["losses"] == [9.0]


def test_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(line(1, 1.0)) + "\n" + json.dumps(line(2, 1.0))[:20])
    assert [entry["step"] for entry in measures.read_metrics(path)] == [1]


def test_planned_memory() -> None:
    log = "Batch 2\nPeak memory: planned 31.5 GiB, measured 30.00 GiB (allocated; reserved 32 GiB, fragmentation 6%)\n"
    found = measures.planned_memory(log)
    assert (found["planned_gib"], found["measured_gib"], found["plan_off_percent"]) == (31.5, 30.0, 5.0)
    assert found["memory_line"].endswith("fragmentation 6%)")
    assert measures.planned_memory("Batch 2") == {}


def test_compare_losses() -> None:
    assert measures.compare_losses([2.0, 4.0], [2.0, 4.04], 1e-2)["largest_relative_difference"] == pytest.approx(0.01)
    assert measures.compare_losses([2.0, 4.0], [2.0, 4.08], 1e-2)["agree"] is False
    assert measures.compare_losses([2.0, 4.0], [2.0, 4.0, 5.0], 0.0)["agree"] is True
    assert measures.compare_losses([], [2.0], 1.0)["agree"] is False


def test_peers_lines_among_others(tmp_path: Path) -> None:
    path = tmp_path / "log"
    llmq = {"peer": "llmq", "work": "qwen2_5_7b", "tokens_per_second_per_gpu": 12000}
    failed = {"peer": "llmq", "work": "qwen2_5_0_5b_mb1", "error": "no GPU"}
    path.write_text(f"warning\n{json.dumps(llmq)}\n{json.dumps(failed)}\n{{cut off\n")
    assert measures.read_peers([path]) == [llmq]


def test_ratio_table() -> None:
    def run(speed: int, **more: float) -> dict:
        return {"tokens_per_second_per_gpu": speed, "mfu_percent": 50.0, **more}

    results = {
        "machine": {"cores": 16},
        "speed_qwen3_0_6b_mb8": run(112_000, first_step_seconds=4.5),
        "speed_qwen3_zero2_4gpu_mb8": run(105_000, exposed_percent=1.5),
        "speed_qwen2_5_0_5b_mb8": run(150_000),
        "qwen3_recompute_full_1gpu": run(1),
    }
    peers = [
        {"peer": "llmq", "work": "qwen2_5_0_5b_mb8", "tokens_per_second_per_gpu": 145_000},
        {"peer": "Hugging Face compiled", "work": "qwen3_0_6b_mb8", "tokens_per_second_per_gpu": 80_000},
    ]
    rows = measures.ratio_table(results, peers)[2:]
    cells = {row.split(" | ")[0].strip("| "): row for row in rows}
    assert len(rows) == 3
    assert "111,000 (reached)" in cells["qwen3_0_6b_mb8"] and "| 1.400 |" in cells["qwen3_0_6b_mb8"]
    assert "4.5 s" in cells["qwen3_0_6b_mb8"]
    # 105,000 of 112,000 is 0.9375; 150,000 of 145,000 is 1.034.
    assert "0.95 (missed)" in cells["qwen3_zero2_4gpu_mb8"] and "1.5%" in cells["qwen3_zero2_4gpu_mb8"]
    assert "1.05 (missed)" in cells["qwen2_5_0_5b_mb8"] and "| 1.034 |" in cells["qwen2_5_0_5b_mb8"]
