#!/usr/bin/env python3
"""Measures tokens per second of T5 under PyTorch's FSDP, with the settings of the FSDP tutorial: full sharding by
T5Block, bf16, AdamW. Uses random tokens and no dropout.

    torchrun --nproc_per_node N bench/t5_peer.py CONFIG.json NAME [--batch 8]     prints one JSON line
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Block


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("name")
    parser.add_argument("--batch", type=int, default=8, help="pairs per rank")
    parser.add_argument("--source_length", type=int, default=512)
    parser.add_argument("--target_length", type=int, default=128)
    parser.add_argument("--checkpointing", action="store_true", help="activation checkpointing of whole blocks")
    parser.add_argument("--warm_up", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    config = T5Config.from_json_file(arguments.config)
    config.dropout_rate = 0.0
    config.use_cache = False
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = T5ForConditionalGeneration(config)
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={T5Block}),
        mixed_precision=MixedPrecision(torch.bfloat16, torch.bfloat16, torch.bfloat16),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=rank,
        limit_all_gathers=True,
    )
    if arguments.checkpointing:
        apply_activation_checkpointing(
            model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda module: isinstance(module, T5Block)
        )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    seconds = []
    for _ in range(arguments.warm_up + arguments.steps):
        source = torch.randint(2, config.vocab_size, (arguments.batch, arguments.source_length), device="cuda")
        target = torch.randint(2, config.vocab_size, (arguments.batch, arguments.target_length), device="cuda")
        torch.cuda.synchronize()
        start = time.monotonic()
        model(input_ids=source, attention_mask=torch.ones_like(source), labels=target).loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - start)
    median = statistics.median(seconds[arguments.warm_up :])
    if rank == 0:
        result = {
            "peer": "PyTorch FSDP",
            "work": arguments.name,
            "gpus": dist.get_world_size(),
            "steps": arguments.steps,
            "step_ms": round(median * 1e3, 2),
            "tokens_per_second_per_gpu": round(
                arguments.batch * (arguments.source_length + arguments.target_length) / median
            ),
            "peak_memory_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
        }
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
