#!/usr/bin/env python3
"""Measures tokens per second of Hugging Face models on one GPU with random tokens, AdamW and clipping; LoRA uses PEFT.

    bench/hugging_face_peer.py [WORK ...]     prints one JSON line for each workload
    bench/hugging_face_peer.py --trl llama3_8b_lora_t4096     uses TRL's SFTTrainer

Optimizer states have the dtype of the weights, as with a plain torch.optim.AdamW on such a model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch
from hugging_face import make_model
from measures import PEAK_FLOPS, flops_per_token, read_model


@dataclass(frozen=True)
class Work:
    model: str
    micro_batch: int
    seq_length: int
    dtype: str = "bf16"  # or fp32: dtype of weights, gradients and optimizer states
    lora_r: int = 0  # rank of PEFT's fp32 adapters on all projections; 0: no adapters
    checkpointing: bool = False  # checkpoint whole layers, the default of TRL's SFTTrainer


WORKS = {
    "qwen3_0_6b_mb8": Work("qwen3_0_6b", 8, 2048),
    "qwen3_0_6b_mb1": Work("qwen3_0_6b", 1, 2048),
    "llama3_8b_lora_t4096": Work("llama_3_8b", 1, 4096, lora_r=16),
    "llama3_8b_lora_t4096_recompute": Work("llama_3_8b", 1, 4096, lora_r=16, checkpointing=True),
}


DEFAULT = [name for name, work in WORKS.items() if not work.lora_r]


def measure(name: str, work: Work, device: torch.device, *, warm_up: int, steps: int, compiled: bool) -> dict:
    config = read_model(work.model)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    started = time.monotonic()
    with device:
        model = make_model(config, {"bf16": torch.bfloat16, "fp32": torch.float32}[work.dtype])
        if work.checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.enable_input_require_grads()
        if work.lora_r:
            from peft import get_peft_model

            model = get_peft_model(model, adapters_of(work))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model) if compiled else model
    shape = (work.micro_batch, work.seq_length)
    seconds = []
    first_step = 0.0
    for step in range(warm_up + steps):
        tokens = torch.randint(0, config["vocab_size"], shape, device=device)
        wait(device)
        start = time.monotonic()
        with torch.autocast(device.type, torch.bfloat16, enabled=work.lora_r > 0 and work.dtype == "bf16"):
            loss = forward(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait(device)
        seconds.append(time.monotonic() - start)
        if step == 0:
            first_step = time.monotonic() - started
    peer = "Hugging Face compiled" if compiled else "Hugging Face"
    return {**result_of(peer, name, work, device, seconds[warm_up:]), "first_step_seconds": round(first_step, 1)}


def measure_trl(name: str, work: Work, device: torch.device, *, warm_up: int, steps: int) -> dict:
    """Measures TRL's SFTTrainer with PEFT adapters on tokenized data."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    config = read_model(work.model)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with device:
        model = make_model(config, torch.bfloat16)
    rows = torch.randint(0, config["vocab_size"], ((warm_up + steps) * work.micro_batch, work.seq_length)).tolist()
    seconds: list[float] = []

    class Times(TrainerCallback):
        def on_step_begin(self, *_, **__) -> None:
            wait(device)
            seconds.append(time.monotonic())

        def on_step_end(self, *_, **__) -> None:
            wait(device)
            seconds[-1] = time.monotonic() - seconds[-1]

    pad = "<pad>"
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir="/tmp/trl_peer",
            per_device_train_batch_size=work.micro_batch,
            max_steps=warm_up + steps,
            max_length=work.seq_length,
            bf16=work.dtype == "bf16",
            gradient_checkpointing=work.checkpointing,
            optim="adamw_torch_fused",
            learning_rate=5e-5,
            max_grad_norm=1.0,
            save_strategy="no",
            report_to=[],
            use_cpu=device.type == "cpu",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"input_ids": rows}),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel({pad: 0}, unk_token=pad)), pad_token=pad, eos_token=pad
        ),
        peft_config=adapters_of(work),
        callbacks=[Times()],
    )
    trainer.train()
    return result_of("TRL", name, work, device, seconds[warm_up:])


def adapters_of(work: Work):
    """Returns PEFT's LoraConfig for a workload."""
    from peft import LoraConfig

    return LoraConfig(r=work.lora_r, lora_alpha=32, target_modules="all-linear")


def result_of(peer: str, name: str, work: Work, device: torch.device, seconds: list[float]) -> dict:
    median = statistics.median(seconds)
    speed = work.micro_batch * work.seq_length / median
    flops = flops_per_token(read_model(work.model), work.seq_length, frozen=work.lora_r > 0)
    result = {
        "peer": peer,
        "work": name,
        "gpus": 1,
        "steps": len(seconds),
        "step_ms": round(median * 1e3, 2),
        "tokens_per_second_per_gpu": round(speed),
        "mfu_percent": round(speed * flops / PEAK_FLOPS * 100, 1),
    }
    if device.type == "cuda":
        result["peak_memory_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 2)
    return result


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", default=DEFAULT, metavar="WORK", help=f"choices: {', '.join(WORKS)}")
    parser.add_argument("--warm_up", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    loops = parser.add_mutually_exclusive_group()
    loops.add_argument("--eager", action="store_true", help="do not use torch.compile")
    loops.add_argument("--trl", action="store_true", help="use TRL's SFTTrainer; requires a workload with adapters")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.works) - WORKS.keys())
    if unknown:
        parser.error(f"unknown workload {unknown[0]}; choose from {', '.join(WORKS)}")
    device = torch.device(arguments.device)
    for name in arguments.works:
        kwargs = {"warm_up": arguments.warm_up, "steps": arguments.steps}
        if arguments.trl:
            result = measure_trl(name, WORKS[name], device, **kwargs)
        else:
            result = measure(name, WORKS[name], device, **kwargs, compiled=not arguments.eager)
        print(json.dumps(result), flush=True)
        torch._dynamo.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
