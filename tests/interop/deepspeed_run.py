#!/usr/bin/env python3
"""Stock DeepSpeed on the CPU, as its users run it: trains a golden run, saves, resumes. For the interop tests.

    deepspeed_run.py GOLDEN RESULT.json --ranks 2 --stage 2 [--bf16] [--save DIR --save_after 6] [--load DIR]

GOLDEN is a folder of tests/golden. RESULT.json receives one object per step: step, loss, lr_applied, grad_norm.
Starts one process per rank itself. More runs on the same ranks may follow, each after a --then.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np


def config_of(arguments: argparse.Namespace) -> dict:
    """The golden configuration with the same global batch on the requested number of ranks."""
    config = json.loads((arguments.golden / "ds_config.json").read_text())
    recorded = json.loads((arguments.golden / "trace.json").read_text())["ranks"]
    samples = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * recorded
    micro_batch = config["train_micro_batch_size_per_gpu"] if arguments.ranks <= recorded else 1
    assert samples % (micro_batch * arguments.ranks) == 0
    config["train_micro_batch_size_per_gpu"] = micro_batch
    config["gradient_accumulation_steps"] = samples // (micro_batch * arguments.ranks)
    config["bf16"] = {"enabled": arguments.bf16}
    if arguments.fp32_gradients:
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    config["zero_optimization"] = {"stage": arguments.stage, **json.loads(arguments.zero)}
    if arguments.offload:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    if not arguments.cpu_adam:
        # DeepSpeed's op for CPUs takes minutes to compile, the one for GPUs is not available: torch's own AdamW.
        config["zero_allow_untested_optimizer"] = True
        config["zero_force_ds_cpu_optimizer"] = False
        config["optimizer"]["params"]["torch_adam"] = True
    return config


def train(arguments: argparse.Namespace) -> None:
    import deepspeed
    import torch
    import torch.distributed as dist
    from transformers import AutoConfig, AutoModelForCausalLM

    rank, ranks = dist.get_rank(), dist.get_world_size()
    config = config_of(arguments)
    trace = json.loads((arguments.golden / "trace.json").read_text())
    length = trace["seq_length"]
    stream = torch.from_numpy(np.load(arguments.golden / "tokens.npy").astype(np.int64))

    model = AutoModelForCausalLM.from_pretrained(
        arguments.golden / "init", dtype=torch.float32, attn_implementation="eager"
    )
    assert AutoConfig.from_pretrained(arguments.golden / "init").vocab_size > int(stream.max())
    parameters = list(model.parameters())
    if arguments.weight_decay_groups:
        # Grouped as by the Hugging Face Trainer: no decay for parameters with one dimension.
        parameters = [
            {"params": [p for p in parameters if p.dim() > 1]},
            {"params": [p for p in parameters if p.dim() <= 1]},
        ]
    if arguments.fused:
        deepspeed.runtime.engine.FusedAdam = torch.optim.AdamW
    engine, *_ = deepspeed.initialize(model=model, model_parameters=parameters, config=config)
    done = 0
    if arguments.load:
        path, client_state = engine.load_checkpoint(str(arguments.load))
        assert path is not None, f"DeepSpeed found no checkpoint in {arguments.load}"
        done = engine.global_steps
        assert isinstance(client_state, dict)
    micro_batch, gas = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    lines = []
    for step in range(done, arguments.steps):
        total = torch.zeros(())
        lr = engine.get_lr()[0]
        for a in range(gas):
            first = ((step * gas + a) * ranks + rank) * micro_batch
            rows = torch.stack(
                [stream[i * length : i * length + length + 1] for i in range(first, first + micro_batch)]
            )
            logits = engine(input_ids=rows[:, :-1], use_cache=False).logits.float()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            engine.backward(loss)
            engine.step()
            total += loss.detach()
        dist.all_reduce(total)
        lines.append(
            {
                "step": step + 1,
                "loss": total.item() / (gas * ranks),
                "lr_applied": lr,
                "grad_norm": None if (norm := engine.get_global_grad_norm()) is None else float(norm),
            }
        )
        if arguments.save and step + 1 == arguments.save_after:
            engine.save_checkpoint(str(arguments.save))
    if rank == 0:
        arguments.result.write_text(json.dumps(lines, indent=1))
    dist.barrier()


def train_all(runs: list[argparse.Namespace]) -> None:
    import deepspeed
    import torch

    torch.set_num_threads(1)
    # Its op for collectives over shared memory takes minutes to compile; gloo computes the same sums.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    for arguments in runs:
        train(arguments)
    torch.distributed.destroy_process_group()
    # Everything is written. DeepSpeed and torch leave threads that are never joined, which sometimes makes the
    # interpreter's exit fail with "terminate called without an active exception".
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def launch(ranks: int) -> int:
    """Starts this program once per rank. The first failure ends all of them. Returns the exit status."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
        "DS_ACCELERATOR": "cpu",
        # Building the optimizer op needs ninja, which is in the folder of this Python.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    started: list[subprocess.Popen] = []
    try:
        for rank in range(ranks):
            environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            started.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
        while any(process.poll() is None for process in started):
            failed = [process.returncode for process in started if process.poll()]
            if failed:
                return failed[0]
            for process in started:
                try:
                    process.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    break
        return max(abs(process.returncode) for process in started)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--fp32_gradients", action="store_true", help="accumulate in fp32")
    parser.add_argument("--cpu_adam", action="store_true", help="DeepSpeed's own AdamW, with --offload")
    parser.add_argument("--offload", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--weight_decay_groups", action="store_true")
    parser.add_argument("--fused", action="store_true", help="treat torch's AdamW as FusedAdam, as on GPUs")
    parser.add_argument("--zero", default="{}", help="JSON, merged into zero_optimization")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--save_after", type=int, default=6)
    parser.add_argument("--load", type=Path)
    words, runs = sys.argv[1:], []
    while "--then" in words:
        place = words.index("--then")
        runs.append(parser.parse_args(words[:place]))
        words = words[place + 1 :]
    runs.append(parser.parse_args(words))
    if "RANK" not in os.environ:
        return launch(runs[0].ranks)
    train_all(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
