#!/usr/bin/env python3
"""Runs stock DeepSpeed on random weights and tokens: the ds_config.json files in configs, configurations without
offload, and SuperOffload.

    bench/deepspeed_peer.py WORK [--gpus N] [--warm_up 3] [--steps 8]     prints one JSON line
    srun … bench/deepspeed_peer.py --deepspeed_config FILE --model_type NAME --seq_length N --meet HOST:PORT

Starts one process per GPU and sets torch.distributed's environment variables, without a launcher. With --meet, srun or
mpirun has started this process as one rank, and HOST:PORT is the address of rank 0.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from measures import PEAK_FLOPS, REPOSITORY, flops_per_token, read_model

TOTAL_STEPS = 1000


@dataclass(frozen=True)
class Work:
    model: str
    seq_length: int
    config: str | dict  # path in the repository, or content of a ds_config.json
    recompute: bool = False


def on_gpu(stage: int, micro_batch: int, gas: int = 1) -> dict:
    """Returns a configuration with all states on the GPU, similar to the files in configs."""
    zero: dict = {"stage": stage}
    if stage == 3:
        names = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
        zero |= {
            "overlap_comm": True,
            "contiguous_gradients": True,
            "sub_group_size": 1e9,
            **dict.fromkeys(names, "auto"),
        }
    return {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": gas,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 5e-5, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "zero_optimization": zero,
    }


LLAMA_FILE = "configs/ds_config_llama3_8b_zero3_offload.json"


def offloaded(micro_batch: int, *, super_offload: bool, clipping: float = 1.0) -> dict:
    """Returns a configuration with AdamW on the CPU and the settings of DeepSpeed's SuperOffload examples (0.19.8).

    SuperOffload runs AdamW in a second process, which updates a sub-group once its gradients are complete. With
    clipping, it waits for the gradient norm of all sub-groups. mpzero ignores super_offload.
    """
    config = on_gpu(3, micro_batch)
    offload = {"device": "cpu", "pin_memory": True} | ({"super_offload": True} if super_offload else {})
    zero = {"overlap_comm": False, "reduce_bucket_size": 4e8, "sub_group_size": 4e8, "offload_optimizer": offload}
    return config | {"gradient_clipping": clipping, "zero_optimization": config["zero_optimization"] | zero}


def users_llama_at_8192() -> dict:
    """Returns the file in configs for Llama-3-8B, with one long sequence instead of 4 x 4 short sequences."""
    config = json.loads((REPOSITORY / LLAMA_FILE).read_text(encoding="utf-8"))
    return config | {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}


WORKS = {
    "users_qwen3_zero2": Work("qwen3_0_6b", 2048, "configs/ds_config.json"),
    "users_qwen3_zero2_4gpu": Work("qwen3_0_6b", 2048, "configs/ds_config.json"),
    "users_llama3_8b_zero3_2gpu": Work("llama_3_8b", 512, LLAMA_FILE),
    "users_llama3_8b_zero3_4gpu": Work("llama_3_8b", 512, LLAMA_FILE),
    "users_llama3_8b_zero3_4gpu_t8192": Work("llama_3_8b", 8192, users_llama_at_8192(), recompute=True),
    "users_superoffload_0_6b": Work("qwen3_0_6b", 2048, offloaded(1, super_offload=True)),
    "users_superoffload_0_6b_unclipped": Work("qwen3_0_6b", 2048, offloaded(1, super_offload=True, clipping=0.0)),
    "users_superoffload_4b": Work("qwen3_4b", 2048, offloaded(4, super_offload=True)),
    "users_superoffload_4b_unclipped": Work("qwen3_4b", 2048, offloaded(4, super_offload=True, clipping=0.0)),
    "zero3_offload_4b": Work("qwen3_4b", 2048, offloaded(4, super_offload=False)),
    "qwen3_zero2_4gpu_mb8": Work("qwen3_0_6b", 2048, on_gpu(2, 8)),
    "llama3_8b_zero3_4gpu_t8192": Work("llama_3_8b", 8192, on_gpu(3, 1), recompute=True),
    "llama3_8b_zero3_4gpu_t512": Work("llama_3_8b", 512, on_gpu(3, 4, gas=4)),
    "tiny_zero2": Work("qwen3_tiny", 64, on_gpu(2, 2)),
    "tiny_zero3": Work("qwen3_tiny", 64, on_gpu(3, 2, gas=2)),
    "tiny_superoffload": Work("qwen3_tiny", 64, offloaded(2, super_offload=True)),
}


def as_deepspeed_reads_it(config: dict, hidden_size: int) -> dict:
    """Returns a user's ds_config.json with values that DeepSpeed accepts, as set by the Hugging Face Trainer.

    Replaces each "auto", the length of the schedule, and the key of the cosine schedule's minimum ratio.
    """
    config = json.loads(json.dumps(config))
    filled_in = {
        "gradient_clipping": 1.0,
        "reduce_bucket_size": hidden_size**2,
        "stage3_prefetch_bucket_size": int(0.9 * hidden_size**2),
        "stage3_param_persistence_threshold": 10 * hidden_size,
    }
    for section in (config, config["zero_optimization"]):
        for name in [name for name, value in section.items() if value == "auto"]:
            if name in filled_in:
                section[name] = filled_in[name]
            else:
                del section[name]
    schedule = config.get("scheduler", {}).get("params")
    if schedule is not None:
        if "cosine_min_ratio" in schedule:
            schedule["cos_min_ratio"] = schedule.pop("cosine_min_ratio")
        schedule.setdefault("total_num_steps", TOTAL_STEPS)
    return config


def users_work(arguments: argparse.Namespace) -> Work:
    model = str(arguments.model_config) if arguments.model_config else arguments.model_type
    return Work(model, arguments.seq_length, json.loads(arguments.deepspeed_config.read_text(encoding="utf-8")))


def model_of(work: Work) -> dict:
    if work.model.endswith(".json"):
        return json.loads(Path(work.model).read_text(encoding="utf-8"))
    return read_model(work.model)


def train(name: str, work: Work, *, warm_up: int, steps: int, on_cpu: bool) -> None:
    """Trains as one rank of the run. Rank 0 prints the result."""
    import deepspeed
    import torch
    import torch.distributed as dist
    from hugging_face import make_model

    launched = float(os.environ["LAUNCHED_AT"])
    device = torch.device("cpu") if on_cpu else torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    if not on_cpu:
        torch.cuda.set_device(device)
    deepspeed.init_distributed("gloo" if on_cpu else "nccl", auto_mpi_discovery=False)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model_config = model_of(work)
    written = work.config
    if isinstance(written, str):
        written = json.loads((REPOSITORY / written).read_text(encoding="utf-8"))
    config = as_deepspeed_reads_it(written, model_config["hidden_size"])
    torch.manual_seed(0)
    dtype = torch.bfloat16 if config.get("bf16", {}).get("enabled") else torch.float32
    if config["zero_optimization"]["stage"] == 3:
        with deepspeed.zero.Init(config_dict_or_path=config, dtype=dtype):
            model = make_model(model_config, dtype)
    else:
        model = make_model(model_config, dtype)
    if config["zero_optimization"]["stage"] == 3:
        initialize_shards(model, model_config["initializer_range"])
    if work.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if cores := super_offload_cores(config, len(os.sched_getaffinity(0))):
        # Read by OpenMP in the process that DeepSpeed starts for AdamW and binds to these cores.
        os.environ["OMP_NUM_THREADS"] = str(cores)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

    def wait() -> None:
        if not on_cpu:
            torch.cuda.synchronize()
        dist.barrier()

    micro_batch, gas = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    generator = torch.Generator(device=device).manual_seed(rank)
    shape = (micro_batch, work.seq_length)
    seconds = []
    first_step = 0.0
    for step in range(warm_up + steps):
        wait()
        start = time.monotonic()
        for _ in range(gas):
            tokens = torch.randint(0, model_config["vocab_size"], shape, device=device, generator=generator)
            loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
            engine.backward(loss)
            engine.step()
        wait()
        seconds.append(time.monotonic() - start)
        if step == 0:
            first_step = time.time() - launched
        if rank == 0:
            print(f"step {step + 1}: {seconds[-1]:.3f} s, loss {loss.item():.4f}", flush=True)
    if rank == 0:
        median = statistics.median(seconds[warm_up:])
        speed = micro_batch * gas * work.seq_length / median
        result = {
            "peer": f"DeepSpeed {deepspeed.__version__}",
            "work": name,
            "gpus": world_size,
            "steps": steps,
            "step_ms": round(median * 1e3, 2),
            "tokens_per_second_per_gpu": round(speed),
            "mfu_percent": round(speed * flops_per_token(model_config, work.seq_length) / PEAK_FLOPS * 100, 1),
            "first_step_seconds": round(first_step, 1),
            "host_memory_gib": round(host_memory_used() / 2**30, 1),
        }
        if not on_cpu:
            result["peak_memory_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 2)
        print(json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def super_offload_cores(config: dict, cores: int) -> int:
    """Returns the number of cores that SuperOffload reserves for AdamW (SuperOffloadCPUOptimizer), or 0 without it."""
    offload = config["zero_optimization"].get("offload_optimizer", {})
    return cores - int((1 - offload.get("cpuadam_cores_perc", 0.8)) * cores) if offload.get("super_offload") else 0


def initialize_shards(model, deviation: float) -> None:
    """Initializes weights as the model does, because zero.Init leaves modules with their default weights."""
    import deepspeed
    import torch

    for parameter in model.parameters():
        with deepspeed.zero.GatheredParameters(parameter, modifier_rank=0), torch.no_grad():
            if parameter.dim() > 1 and torch.distributed.get_rank() == 0:
                parameter.normal_(0.0, deviation)


def host_memory_used() -> int:
    """Returns the memory in use on this machine in bytes, over all processes, including shared memory."""
    import psutil

    memory = psutil.virtual_memory()
    return memory.total - memory.available


def join(meet: str) -> None:
    """Sets torch.distributed's environment variables from this rank's variables of srun or mpirun."""
    names = {
        "RANK": ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID"),
        "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"),
        "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
        "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"),
    }
    for name, sources in names.items():
        value = next((os.environ[source] for source in sources if source in os.environ), None)
        if value is None:
            raise SystemExit(f"deepspeed_peer.py: --meet requires mpirun or srun: {sources} are not set")
        os.environ[name] = value
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = meet.rsplit(":", 1)
    os.environ["LAUNCHED_AT"] = str(time.time())


def launch(gpus: int) -> int:
    """Starts this program once per GPU, ends all processes after the first failure, and returns the exit status."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(gpus),
        "LOCAL_WORLD_SIZE": str(gpus),
        "LAUNCHED_AT": str(time.time()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // gpus))),
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ranks: list[subprocess.Popen] = []
    try:
        for rank in range(gpus):
            environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
        while any(rank.poll() is None for rank in ranks):
            failed = [rank.returncode for rank in ranks if rank.poll()]
            if failed:
                return failed[0]
            time.sleep(0.1)
        return max(abs(rank.returncode) for rank in ranks)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=WORKS, nargs="?")
    parser.add_argument("--deepspeed_config", type=Path, help="ds_config.json; requires --model_type or --model_config")
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model_type", help="name of a preset in configs/models")
    model.add_argument("--model_config", type=Path, help="path of a config.json")
    parser.add_argument("--seq_length", type=int, default=2048)
    parser.add_argument("--meet", metavar="HOST:PORT")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--warm_up", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--cpu", action="store_true", help="run on the CPU with Gloo")
    arguments = parser.parse_args()
    if arguments.deepspeed_config is None and arguments.work is None:
        parser.error("pass a workload, or --deepspeed_config with --model_type or --model_config")
    if arguments.deepspeed_config is not None and not (arguments.model_type or arguments.model_config):
        parser.error("--deepspeed_config requires --model_type or --model_config")
    if arguments.meet:
        join(arguments.meet)
    elif "LAUNCHED_AT" not in os.environ:
        return launch(arguments.gpus)
    os.environ["DS_ACCELERATOR"] = "cpu" if arguments.cpu else "cuda"
    work = users_work(arguments) if arguments.deepspeed_config else WORKS[arguments.work]
    name = arguments.work or arguments.deepspeed_config.stem
    train(name, work, warm_up=arguments.warm_up, steps=arguments.steps, on_cpu=arguments.cpu)
    return 0


if __name__ == "__main__":
    sys.exit(main())
